"""Mixed precision as it ran: where autocast was entered, what GradScaler did and when, what was
clipped in between.
"""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler, OptState
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS, Backward, node_of
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private import training
from auditor.capture.instruments.weakrefs import alive
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.grad_clipping import watch_clipping, watch_clipping_by_value
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe
from auditor.recordings.schema import AmpRow

OLD_MODULES = ("torch.cuda.amp", "torch.cpu.amp")
"""Where the classes live that torch 2.4 deprecated."""


@dataclass
class _Step:
    """What was seen so far of one step of the target."""

    scaled: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    """What enabled GradScalers returned."""
    untold: bool = False
    """One returned an iterator, which is the user's to go through."""
    unscaled: set[int] = field(default_factory=set)
    """Optimizers that a GradScaler stepped or unscaled."""
    plain: bool = False
    """A backward began at something else."""
    scale_read: bool = False
    """The user asked for the scale, and may unscale by hand."""
    half: bool = False
    """Autocast was entered in float16 with gradients on."""


class AmpProbe(OptimizerProbe):
    """Writes ``amp``.

    Scales are kept on their device and read when the pass is over: reading one is a host sync on a
    GPU.
    """

    name = "amp"
    parts = ("amp",)
    passes = frozenset({"loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches(self.missed)
        self._events: Counter[tuple[int, str, str]] = Counter()
        self._clipped: list[tuple[int, set[int]]] = []
        self._scales: list[tuple[int, int, torch.Tensor, torch.Tensor]] = []
        self._step = _Step()
        self._watching = False

    def start(self) -> None:
        """Watch autocast, GradScaler, clipping and the door of backward."""
        self.context.writer.touch("amp")
        self._patches.around(autocast, "__enter__", before=self._entered)
        self._patches.around(GradScaler, "scale", before=self._scales_now, after=self._scaled)
        self._patches.around(GradScaler, "unscale_", before=self._unscales)
        self._patches.around(GradScaler, "step", before=self._unscales)
        self._patches.around(GradScaler, "get_scale", before=self._reads_scale)
        self._patch_update()
        self._step, self._watching = _Step(), True
        watch_clipping(self._patches, self._clips)
        watch_clipping_by_value(self._patches, self._clips_by_value)
        BACKWARD_HOOKS.add(self)

    def stop(self) -> None:
        """Put everything back, then read the scales."""
        self._watching = False
        BACKWARD_HOOKS.remove(self)
        self._patches.undo()
        for at, step, before, after in self._scales:
            self.context.add(
                AmpRow(step=step, at=at, what="update", before=float(before), after=float(after))
            )
        self._scales.clear()

    def step_end(self) -> None:
        """Write the step's rows."""
        for (at, what, dtype), n in self._events.items():
            self.context.add(AmpRow(at=at, what=what, dtype=dtype, n=n))
        self._events.clear()
        self._clipped.clear()
        self._step = _Step()

    # -- what happens ------------------------------------------------------------------------------

    def _entered(self, mode: Any) -> None:
        if type(mode).__module__.startswith(OLD_MODULES):
            self._note("old_autocast")
        if training.autocast_enabled(mode):
            trains = torch.is_grad_enabled()
            self._note("autocast" if trains else "autocast_no_grad", str(mode.fast_dtype))
            self._step.half |= trains and mode.fast_dtype is torch.float16

    def _scales_now(self, scaler: Any, *_: Any, **__: Any) -> None:
        if type(scaler).__module__.startswith(OLD_MODULES):
            self._note("old_scaler")
        if scaler.is_enabled():
            self._note("scale")

    def _scaled(self, outputs: Any, scaler: Any, *_: Any, **__: Any) -> None:
        if scaler.is_enabled():
            each = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
            if isinstance(each, (tuple, list)):
                self._step.scaled.extend(weakref.ref(tensor) for tensor in each)
            else:
                self._step.untold = True

    def _reads_scale(self, *_: Any) -> None:
        self._step.scale_read = True

    def _clips(self, parameters: Sequence[torch.Tensor], norm: torch.Tensor) -> None:
        self._note_clipping(parameters)

    def _note_clipping(self, parameters: Sequence[torch.Tensor]) -> None:
        at = self.context.frames.here() if self.context.in_step else None
        if at is not None:
            self._clipped.append((at, {id(parameter) for parameter in parameters}))

    def _clips_by_value(self, parameters: Sequence[torch.Tensor]) -> None:
        if not self._step.scale_read:  # a limit may be scaled as the gradients are
            self._note_clipping(parameters)

    def _unscales(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> None:
        """Gradients of an optimizer are about to be unscaled: whoever clipped them before clipped
        scaled ones.
        """
        self._step.unscaled.add(id(optimizer))
        if not self._clipped or not scaler.is_enabled():
            return
        states = training.unscaled_states(scaler)
        if states is None or states[id(optimizer)]["stage"] is not OptState.READY:
            return
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for at, clipped in self._clipped:
            if clipped & own:
                self._events[at, "clip_scaled", ""] += 1
        self._clipped = [(at, clipped) for at, clipped in self._clipped if not clipped & own]

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Note one that steps by itself: with scaled gradients, if all backwards of the step began
        at scaled losses.
        """
        step = self._step
        if (
            self._watching
            and step.scaled
            and not (step.plain or step.scale_read or id(optimizer) in step.unscaled)
        ):
            self._note("step_scaled")

    def backward_begins(self, call: Backward) -> None:
        """Note it if autocast is on, or if float16 ran and nothing scaled the loss."""
        if call.nested or not self.context.in_step:
            return
        scaled = [alive(reference) for reference in self._step.scaled]
        if not all(any(tensor is each for each in scaled) for tensor in call.tensors):
            self._step.plain = True
            if (
                self._step.half
                and not scaled
                and not self._step.untold
                and not any(_multiplied(tensor) for tensor in call.tensors)
            ):
                self._note("backward_unscaled", "float16")
        for device in ("cuda", "cpu"):
            if torch.is_autocast_enabled(device):
                self._note("backward", str(torch.get_autocast_dtype(device)))
                return

    def _note(self, what: str, dtype: str = "") -> None:
        at = self.context.frames.here() if self.context.in_step else None
        if at is not None:
            self._events[at, what, dtype.removeprefix("torch.")] += 1

    # -- patches -----------------------------------------------------------------------------------

    def _patch_update(self) -> None:
        original = GradScaler.update

        @functools.wraps(original)
        def update(scaler: Any, *args: Any, **kwargs: Any) -> None:
            before = _scale_of(scaler)
            original(scaler, *args, **kwargs)
            after = _scale_of(scaler)
            at = self.context.frames.here() if self.context.in_step else None
            given: Iterable[Any] = (*args, *kwargs.values())
            if (
                at is not None
                and before is not None
                and after is not None
                and all(each is None for each in given)
            ):
                self._scales.append((at, self.context.step, before, after))

        self._patches.attribute(GradScaler, "update", update)


def _multiplied(tensor: torch.Tensor) -> bool:
    """True if the last thing done to it was a product: a loss that may have been scaled by hand."""
    return type(node_of(tensor)).__name__.startswith("Mul")


def _scale_of(scaler: Any) -> torch.Tensor | None:
    """A copy of the scale; None of a disabled scaler, which has none."""
    scale = training.scale_of(scaler)
    return scale.detach().clone() if isinstance(scale, torch.Tensor) else None
