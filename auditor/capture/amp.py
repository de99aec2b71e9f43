"""Mixed precision as it ran: where autocast was entered, what GradScaler did and when, what was clipped in between."""

from __future__ import annotations

import contextlib
import functools
import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler, OptState
from torch.nn.utils import clip_grad
from torch.optim.optimizer import Optimizer

from auditor.capture.autograd_graph import DOOR, Backward, node_of
from auditor.capture.optimizers import OptimizerProbe
from auditor.capture.patching import Patches
from auditor.capture.probe import Context

OLD_MODULES = ("torch.cuda.amp", "torch.cpu.amp")
"""Where the classes live that torch 2.4 deprecated."""


@dataclass
class _Step:
    """What was seen so far of one step of the target."""

    scaled: list[weakref.ref[torch.Tensor]] = field(default_factory=list)
    """What enabled GradScalers returned."""
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

    Scales are kept on their device and read when the pass is over: reading one is a host sync on a GPU.
    """

    name = "amp"
    parts = ("amp",)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches()
        self._events: Counter[tuple[int, str, str]] = Counter()
        self._clipped: list[tuple[int, set[int]]] = []
        self._scales: list[tuple[int, int, torch.Tensor, torch.Tensor]] = []
        self._step = _Step()
        self._watching = False

    def start(self) -> None:
        """Watch autocast, GradScaler, clipping and the door of backward."""
        self.context.writer.touch("amp")
        self._around(autocast, "__enter__", before=self._entered)
        self._around(GradScaler, "scale", before=self._scales_now, after=self._scaled)
        self._around(GradScaler, "unscale_", before=self._unscales)
        self._around(GradScaler, "step", before=self._unscales)
        self._around(GradScaler, "get_scale", before=self._reads_scale)
        self._patch_update()
        self._step, self._watching = _Step(), True
        if hasattr(clip_grad, "_clip_grads_with_norm_"):  # what clip_grad_norm_ calls, by whatever name the user has that
            self._around(clip_grad, "_clip_grads_with_norm_", before=self._clips)
        by_value = getattr(clip_grad.clip_grad_value_, "__wrapped__", None)
        if isinstance(by_value, FunctionType):
            self._patches.code(by_value, self._clips_by_value)
        DOOR.add(self)

    def stop(self) -> None:
        """Put everything back, then read the scales."""
        self._watching = False
        DOOR.remove(self)
        self._patches.undo()
        for at, step, before, after in self._scales:
            self.context.add("amp", {"step": step, "at": at, "what": "update", "before": float(before), "after": float(after)})
        self._scales.clear()

    def step_end(self) -> None:
        """Write the step's rows."""
        for (at, what, dtype), n in self._events.items():
            self.context.add("amp", {"at": at, "what": what, "dtype": dtype, "n": n})
        self._events.clear()
        self._clipped.clear()
        self._step = _Step()

    # -- what happens ----------------------------------------------------------------------------------------------

    def _entered(self, mode: Any) -> None:
        if type(mode).__module__.startswith(OLD_MODULES):
            self._note("old_autocast")
        if mode._enabled:
            trains = torch.is_grad_enabled()
            self._note("autocast" if trains else "autocast_no_grad", str(mode.fast_dtype))
            self._step.half |= trains and mode.fast_dtype is torch.float16

    def _scales_now(self, scaler: Any, *_: Any) -> None:
        if type(scaler).__module__.startswith(OLD_MODULES):
            self._note("old_scaler")
        if scaler.is_enabled():
            self._note("scale")

    def _scaled(self, outputs: Any, scaler: Any, *_: Any) -> None:
        if scaler.is_enabled():
            each = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
            self._step.scaled.extend(weakref.ref(tensor) for tensor in each)

    def _reads_scale(self, *_: Any) -> None:
        self._step.scale_read = True

    def _clips(self, parameters: Any, max_norm: float, *_: Any, **__: Any) -> None:
        at = self.context.frames.here() if self.context.in_step and not math.isinf(float(max_norm)) else None
        if at is not None:
            clipped = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            self._clipped.append((at, {id(parameter) for parameter in clipped}))

    def _clips_by_value(
        self, original: Callable[..., None], parameters: Any, clip_value: float, *args: Any, **kwargs: Any
    ) -> None:
        clipped = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        if not self._step.scale_read:  # a limit may be scaled as the gradients are
            self._clips(clipped, clip_value)
        original(clipped, clip_value, *args, **kwargs)

    def _unscales(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> None:
        """Gradients of an optimizer are about to be unscaled: whoever clipped them before clipped scaled ones."""
        self._step.unscaled.add(id(optimizer))
        if not self._clipped or not scaler.is_enabled():
            return
        if scaler._per_optimizer_states[id(optimizer)]["stage"] is not OptState.READY:
            return
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for at, clipped in self._clipped:
            if clipped & own:
                self._events[at, "clip_scaled", ""] += 1
        self._clipped = [(at, clipped) for at, clipped in self._clipped if not clipped & own]

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Note a step with gradients that are scaled still."""
        """An optimizer steps by itself: with scaled gradients, if all backwards of the step began at scaled losses."""
        step = self._step
        if self._watching and step.scaled and not (step.plain or step.scale_read or id(optimizer) in step.unscaled):
            self._note("step_scaled")

    def backward_begins(self, call: Backward) -> None:
        """Note it if autocast is on, or if float16 ran and nothing scaled the loss."""
        if call.nested or not self.context.in_step:
            return
        scaled = [ref() for ref in self._step.scaled]
        if not all(any(tensor is each for each in scaled) for tensor in call.tensors):
            self._step.plain = True
            if self._step.half and not scaled and not any(_multiplied(tensor) for tensor in call.tensors):
                self._note("backward_unscaled", "float16")
        for device in ("cuda", "cpu"):
            if torch.is_autocast_enabled(device):
                self._note("backward", str(torch.get_autocast_dtype(device)))
                return

    def backward_ends(self, call: Backward) -> None:
        """Nothing more to learn."""

    def backward_lost(self, error: Exception) -> None:
        """Say that the rest of the pass was not seen."""
        self.context.warn(f"backward under autocast was not watched to the end ({type(error).__name__}: {error})")

    def _note(self, what: str, dtype: str = "") -> None:
        at = self.context.frames.here() if self.context.in_step else None
        if at is not None:
            self._events[at, what, dtype.removeprefix("torch.")] += 1

    # -- patches ---------------------------------------------------------------------------------------------------

    def _around(
        self, owner: Any, name: str, *, before: Callable[..., None], after: Callable[..., None] = lambda *_, **__: None
    ) -> None:
        """Call ``before`` with the same arguments first, ``after`` with the result in front of them.

        What they raise does not reach the user.
        """
        original = vars(owner)[name]

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                before(*args, **kwargs)
            result = original(*args, **kwargs)
            with contextlib.suppress(Exception):
                after(result, *args, **kwargs)
            return result

        self._patches.attribute(owner, name, watched)

    def _patch_update(self) -> None:
        original = GradScaler.update

        @functools.wraps(original)
        def update(scaler: Any, *args: Any, **kwargs: Any) -> None:
            before = _scale_of(scaler)
            original(scaler, *args, **kwargs)
            after = _scale_of(scaler)
            at = self.context.frames.here() if self.context.in_step else None
            given: Iterable[Any] = (*args, *kwargs.values())
            if at is not None and before is not None and after is not None and all(each is None for each in given):
                self._scales.append((at, self.context.step, before, after))

        self._patches.attribute(GradScaler, "update", update)


def _multiplied(tensor: torch.Tensor) -> bool:
    """True if the last thing done to it was a product: a loss that may have been scaled by hand."""
    return type(node_of(tensor)).__name__.startswith("Mul")


def _scale_of(scaler: Any) -> torch.Tensor | None:
    """A copy of the scale; None of a disabled scaler, which has none."""
    scale = getattr(scaler, "_scale", None)
    return scale.detach().clone() if isinstance(scale, torch.Tensor) else None
