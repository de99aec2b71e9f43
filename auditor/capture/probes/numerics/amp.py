"""Mixed precision as it ran: autocast, what GradScaler did and when, what was clipped."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler, OptState
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.autograd_graph import Backward, node_of
from auditor.capture.instruments.live_objects import alive
from auditor.capture.instruments.torch_private import training
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import (
    OptimizerProbe,
    PerOptimizer,
    tensors_of,
    watch_clipping,
    watch_clipping_by_value,
)
from auditor.capture.probes.sync.reads import StandIn
from auditor.recordings.schema.numerics import AmpRow

BY_HAND = {"clamp_": "clamp_scaled", "clip_": "clamp_scaled", "mul_": "mul_scaled"}
"""Methods by which gradients are clipped by hand, and what they are told as."""

OPTIMIZERS = 64
"""Upper bound on optimizers whose last step is remembered."""

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
    by_hand: dict[tuple[int, str], set[int]] = field(default_factory=dict)
    """Lines that clamp or multiply tensors in place, with where those begin in memory."""


@dataclass
class _Updates:
    """Updates of one scaler, by the step in which it stepped the optimizers that they follow: of a
    script's last optimizer the update comes when the next step has begun.
    """

    step: int = -1
    since: set[int] = field(default_factory=set)
    """Optimizers that it stepped since its last update."""
    by_step: dict[int, list[tuple[int, set[int]]]] = field(default_factory=dict)
    """Lines that updated it, each with what it had stepped."""

    def stepped(self, optimizer: int, step: int) -> None:
        self.since.add(optimizer)
        self.step = step

    def updated(self, at: int, step: int) -> None:
        of = self.step if self.since else step
        self.by_step.setdefault(of, []).append((at, self.since))
        self.since = set()

    def over(self, before: int) -> Iterator[tuple[int, int]]:
        """Steps before this one whose updates are all known, with the lines that were too early."""
        for step in [each for each in self.by_step if each < before]:
            for at in _early(self.by_step.pop(step)):
                yield step, at


class AmpProbe(OptimizerProbe):
    """Writes ``amp``.

    Scales are kept on their device and read when the pass is over: reading one is a host sync on a
    GPU.
    """

    name = "amp"
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._events: Counter[tuple[int, str, str]] = Counter()
        self._clipped: list[tuple[int, set[int]]] = []
        self._intervals: dict[float, tuple[int, int]] = {}
        self._scales: list[tuple[int, int, torch.Tensor, torch.Tensor]] = []
        self._step = _Step()
        self._backwards = 0
        self._updates: dict[int, _Updates] = {}
        self._stepped: PerOptimizer[list[int]] = PerOptimizer(OPTIMIZERS)

    def start(self) -> None:
        super().start()
        self._patches.around(autocast, "__enter__", before=self._entered)
        self._patches.around(GradScaler, "__init__", after=self._on_scaler)
        self._patches.around(GradScaler, "scale", before=self._scales_now, after=self._scaled)
        self._patches.around(GradScaler, "unscale_", before=self._unscales)
        self._patches.around(GradScaler, "step", before=self._unscales)
        self._patches.around(GradScaler, "get_scale", before=self._reads_scale)
        self._patch_update()
        self._step = _Step()
        for name in BY_HAND:
            self._patch_in_place(name)
        watch_clipping(self._patches, lambda parameters, _: self._note_clipping(parameters))
        watch_clipping_by_value(self._patches, self._clips_by_value)

    def stop(self) -> None:
        super().stop()
        self._write_early(self.context.step + 1)
        self._updates.clear()
        for at, step, before, after in self._scales:
            self.context.add(
                AmpRow(step=step, at=at, what="update", before=float(before), after=float(after))
            )
        self._scales.clear()
        for interval, (at, step) in self._intervals.items():
            self.context.add(AmpRow(step=step, at=at, what="growth", before=interval))
        self._intervals.clear()

    def step_end(self) -> None:
        self._write_early(self.context.step)
        for (at, what, dtype), n in self._events.items():
            self.context.add(AmpRow(at=at, what=what, dtype=dtype, n=n))
        self._events.clear()
        self._clipped.clear()
        self._step = _Step()

    def _write_early(self, before: int) -> None:
        for updates in self._updates.values():
            for step, at in updates.over(before):
                self.context.add(AmpRow(step=step, at=at, what="update_early", n=1))

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
            at = self.context.frames.here() if self.context.in_step else None
            if at is not None:
                interval = float(scaler.get_growth_interval())
                self._intervals.setdefault(interval, (at, self.context.step))

    def _scaled(self, outputs: Any, scaler: Any, *_: Any, **__: Any) -> None:
        if scaler.is_enabled():
            each = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
            if isinstance(each, (tuple, list)):
                self._step.scaled.extend(weakref.ref(tensor) for tensor in each)
            else:
                self._step.untold = True

    def _on_scaler(self, _: None, scaler: Any, *__: Any, **___: Any) -> None:
        if scaler.is_enabled():
            self._note("made")

    def _reads_scale(self, *_: Any) -> None:
        self._step.scale_read = True

    def _note_clipping(self, parameters: Sequence[torch.Tensor]) -> None:
        at = self.context.frames.here() if self.context.in_step else None
        if at is not None:
            self._clipped.append((at, {id(parameter) for parameter in parameters}))

    def _clips_by_value(self, parameters: Sequence[torch.Tensor]) -> None:
        if not self._step.scale_read:  # a limit may be scaled as the gradients are
            self._note_clipping(parameters)

    def _unscales(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> None:
        """Gradients are about to be unscaled: whoever clipped them before clipped scaled ones."""
        self._step.unscaled.add(id(optimizer))
        known = self._updates.setdefault(id(scaler), _Updates())
        known.stepped(id(optimizer), self.context.step)
        if not (self._clipped or self._step.by_hand) or not scaler.is_enabled():
            return
        states = training.unscaled_states(scaler)
        if states is None or states[id(optimizer)]["stage"] is not OptState.READY:
            return
        if not self._step.scale_read:
            grads = {
                each.grad.data_ptr() for each in tensors_of(optimizer) if each.grad is not None
            }
            for (at, what), touched in self._step.by_hand.items():
                if touched & (grads - {0}):
                    self._events[at, what, ""] += 1
                    touched.difference_update(grads)
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for at, clipped in self._clipped:
            if clipped & own:
                self._events[at, "clip_scaled", ""] += 1
        self._clipped = [(at, clipped) for at, clipped in self._clipped if not clipped & own]

    def _in_place(self, tensor: Any, name: str) -> None:
        """Something of the user's own changes a tensor that may be a gradient."""
        if not self._step.scaled or not self.context.in_step:
            return
        if tensor.requires_grad or not self.context.frames.is_user(
            sys._getframe(3).f_code.co_filename
        ):
            return
        at = self.context.frames.here()
        if at is not None:
            self._step.by_hand.setdefault((at, BY_HAND[name]), set()).add(tensor.data_ptr())

    def _steps_again(self, optimizer: Optimizer) -> bool:
        """It stepped before on the same scaled gradients: no backward ran since."""
        last = self._stepped.of(optimizer, lambda: [-1, False])
        if last is None:
            return False
        again = last[0] == self._backwards > 0  # a CUDA graph replays a backward that no hook sees
        scaled = bool(self._step.scaled) or id(optimizer) in self._step.unscaled
        last[:] = [self._backwards, scaled or (again and bool(last[1]))]
        had = any(each.grad is not None for each in tensors_of(optimizer))
        return again and bool(last[1]) and had

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Note one that steps by itself: with scaled gradients, if all backwards of the step began
        at scaled losses; and one that steps again on the gradients of its last step.
        """
        step = self._step
        if self.watching and self._steps_again(optimizer):
            self._note("step_again")
            return
        if (
            self.watching
            and step.scaled
            and not (step.plain or step.scale_read or id(optimizer) in step.unscaled)
        ):
            self._note("step_scaled")

    def backward_begins(self, call: Backward) -> None:
        """Note it if autocast is on, or if float16 ran and nothing scaled the loss."""
        self._backwards += 1
        if call.nested or not self.context.in_step:
            return
        scaled = [alive(reference) for reference in self._step.scaled]
        if not all(any(tensor is each for each in scaled) for tensor in call.tensors):
            self._step.plain = True
            if (
                self._step.half
                and not scaled
                and not self._step.untold
                # a loss whose last operator is a product may have been scaled by hand
                and not any(type(node_of(each)).__name__.startswith("Mul") for each in call.tensors)
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

    def _patch_in_place(self, name: str) -> None:
        original = getattr(torch.Tensor, name)
        told = self._patches.guarded(self._in_place)

        @functools.wraps(original)
        def changed(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            told(tensor, name)
            return original(tensor, *args, **kwargs)

        self._patches.attribute(torch.Tensor, name, StandIn(original, changed))

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
                known = self._updates.setdefault(id(scaler), _Updates())
                known.updated(at, self.context.step)

        self._patches.attribute(GradScaler, "update", update)


def _early(updates: list[tuple[int, set[int]]]) -> list[int]:
    """Lines of the updates before a scaler's last one, where each has its own line and its own
    optimizers: one iteration, and none that is repeated within the step.
    """
    lines = [at for at, _ in updates]
    stepped = [each for _, optimizers in updates for each in optimizers]
    if len(set(lines)) < len(lines) or len(set(stepped)) < len(stepped):
        return []
    return lines[:-1] if all(optimizers for _, optimizers in updates) else []


def _scale_of(scaler: Any) -> torch.Tensor | None:
    scale = training.scale_of(scaler)
    return scale.detach().clone() if isinstance(scale, torch.Tensor) else None
