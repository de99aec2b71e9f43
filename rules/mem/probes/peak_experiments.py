"""A few steps of a rehearsal with one change each: how much lower is the peak of device memory? The
user's lines that a backward runs under, for the handlers around it. And distances of all pairs that
are made through one tensor of all differences.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.storages import Storages
from auditor.capture.instruments.torch_private.tensors import version_of
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.data.dataloader_facts import LargestBatches
from auditor.capture.probes.operator_stream import Call, Operator, OperatorProbe, Subscriber
from auditor.capture.probes.optim.optimizer_hooks import (
    OptimizerProbe,
    groups_of,
    live_optimizers,
    tensors_of,
)
from auditor.runs.plan import LEANER_STEPS

from ..rows import DifferencesRow, EnclosingRow, LeanerRow

LEAST = 8
"""Partners of each row, and numbers of a row, from which the differences are followed."""

SUMS = frozenset({"sum", "mean"})


@dataclass(eq=False)
class Differences:
    """The differences of all pairs, and what became of them. ``used``: they are needed."""

    at: int
    shape: torch.Size
    nbytes: int
    graph: bool
    kind: str = ""
    """``squares`` or ``absolute``, once they were taken."""
    summed: bool = False
    used: bool = False


class PairwiseDifferencesWatch(Subscriber):
    """Follows differences of tensors broadcast against one another to their last sum."""

    in_backward = False

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        super().__init__(on_error)
        self._trails: Storages[Differences] = Storages()
        self.found: list[Differences] = []

    def wants(self, operator: Operator) -> bool:
        """All that compute."""
        return not operator.view

    def before(self, call: Call) -> bool | None:
        """A difference begins a trail; any other operator is looked at where there are some."""
        return True if self._trails or call.operator.name == "sub" else None

    def after(self, call: Call, noted: Any) -> None:
        """Begin a trail at a difference of all pairs, and follow those there are."""
        operator, args, result = call.operator, call.args, call.result
        if operator.writes or not isinstance(result, torch.Tensor):
            self._spoil(call)
        elif operator.name == "sub" and _all_pairs(args, result):
            self._spoil(call)
            if call.site is not None:
                made = Differences(call.site, result.shape, result.nbytes, call.graph)
                self.found.append(made)
                self._trails.lay(result, made)
        else:
            self._follow(call, result)

    def end_step(self) -> list[Differences]:
        """Return the differences that were only summed, and reset."""
        found, self.found = self.found, []
        self._trails.clear()
        return [each for each in found if each.summed and not each.used]

    def _follow(self, call: Call, result: torch.Tensor) -> None:
        operator, args = call.operator, call.args
        known = args and isinstance(args[0], torch.Tensor)
        trail = self._trails.of(args[0]) if known else None
        kind = _kind(operator, args) if trail is not None else ""
        if trail is None or trail.used:
            self._spoil(call)
        elif kind and not trail.kind and args[0].shape == trail.shape:
            trail.kind = kind
            self._trails.lay(result, trail)
        elif _summed(operator, args, trail):
            trail.summed = True
        else:
            self._spoil(call)

    def _spoil(self, call: Call) -> None:
        """What it was given is needed for something else."""
        for each in call.given:
            trail = self._trails.of(each)
            if trail is not None:
                trail.used = True


def _all_pairs(args: tuple[Any, ...], result: torch.Tensor) -> bool:
    """Each of both is repeated, over a dimension of its own."""
    if len(args) != 2 or not all(isinstance(each, torch.Tensor) for each in args):
        return False
    wide = result.ndim > 2 and result.shape[-1] >= LEAST
    same = all(each.ndim and each.shape[-1] == result.shape[-1] for each in args)
    return wide and same and all(result.numel() >= LEAST * each.numel() for each in args)


def _kind(operator: Operator, args: tuple[Any, ...]) -> str:
    squared = (
        operator.name == "square"
        or (operator.name == "pow" and len(args) > 1 and args[1] == 2)
        or (operator.name == "mul" and len(args) > 1 and args[0] is args[1])
    )
    return "squares" if squared else "absolute" if operator.name == "abs" else ""


def _summed(operator: Operator, args: tuple[Any, ...], trail: Differences) -> bool:
    """The last dimension, and no other, is summed; of a norm, it is that of the differences."""
    norm = operator.name == "linalg_vector_norm" and len(args) > 2 and args[1] in (1, 2)
    dims = args[2] if norm else args[1] if len(args) > 1 else None
    right = args[0].shape == trail.shape and dims in ([-1], [len(trail.shape) - 1])
    if norm and right and not trail.kind:
        trail.kind = "squares" if args[1] == 2 else "absolute"
        return True
    return right and operator.name in SUMS and bool(trail.kind)


class PairwiseDifferencesProbe(OperatorProbe):
    """Writes ``differences``. Nothing of a tensor is read."""

    name = "differences"
    passes = frozenset({"numbers"})
    unseen = "differences of all pairs were not followed through some operators"

    _watching: PairwiseDifferencesWatch | None = None

    def watch(self) -> None:
        """Follow differences."""
        self.context.writer.touch("differences")
        self._watching = PairwiseDifferencesWatch(self.missed)
        self.enter(self._watching)

    def step_end(self) -> None:
        for each in self._watching.end_step() if self._watching is not None else ():
            row = DifferencesRow(at=each.at, kind=each.kind, bytes=each.nbytes, graph=each.graph)
            row.size = each.shape[-1]
            self.context.add(row)

    def stop(self) -> None:
        super().stop()
        self._watching = None


STACKS = 64
"""Different stacks that are written at most: recursion must not fill the recording."""


class BackwardCallersProbe(Probe):
    """Writes ``enclosing``: one row for each stack of user frames around the step's backwards."""

    name = "enclosing"
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._told: set[tuple[int, ...]] = set()

    def start(self) -> None:
        self._told.clear()
        super().start()

    def backward_begins(self, call: Backward) -> None:
        """Write the stack, the first time that it is seen."""
        if call.nested or not self.context.in_step or len(self._told) >= STACKS:
            return
        frames = self.context.frames
        lines = tuple(frames.number(each) for each in frames.user_frames(sys._getframe()))
        if lines and lines not in self._told:
            self._told.add(lines)
            self.context.add(EnclosingRow(lines=list(lines)))


ENDLESS: Final = 1 << 50
"""Bytes of a card that nothing fills."""

Gradient = tuple[int, int]
"""Identity and version of a gradient; zeros without a gradient."""


class PeakExperimentsProbe(OptimizerProbe):
    """Writes ``leaner``: one row for each step of its pass.

    ``gradients`` clears all gradients before the step, where the program itself has cleared them by
    its first backward: then nothing else changes. ``foreach`` makes optimizers step parameter by
    parameter. ``largest`` has loaders give the largest batch of an epoch in the place of the next
    one, on a card without a limit.
    """

    name = "leaner"
    passes = frozenset({"leaner"})
    in_runs = False
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._optimizers: list[Optimizer] = []
        self._stepped: dict[int, Optimizer] = {}
        self._what = ""
        self._touched = 0
        self._at: int | None = None
        self._before: dict[int, Gradient] | None = None
        self._kept: set[int] | None = None
        """Tensors whose gradient was there at a step's first backward; None: not known."""
        self._switched: list[tuple[dict[str, Any], Any]] = []
        self._largest: LargestBatches | None = None
        self._capacity = 0

    def uninstall(self) -> None:
        self._restore()
        super().uninstall()

    def start(self) -> None:
        super().start()
        self._optimizers = live_optimizers()

    def stop(self) -> None:
        """Put back what a step that broke off has left. May be called twice."""
        super().stop()
        self._restore()
        self._optimizers = []
        self._stepped.clear()

    def step_begin(self) -> None:
        """Make the step's change, then reset the peak."""
        self._what, self._touched, self._before = (
            LEANER_STEPS[self.context.step % len(LEANER_STEPS)],
            0,
            None,
        )
        if self._what == "gradients":
            self._clear()
        elif self._what == "foreach":
            self._one_by_one()
        elif self._what == "largest":
            if self.context.shadow is not None:
                self.context.shadow.memory.resize(ENDLESS)
                self._largest = LargestBatches(self.context, self._patches)
        elif not self._what:
            self._before = self._gradients()
        if self.context.shadow is not None:
            self.context.shadow.memory.reset_peak()

    def step_end(self) -> None:
        """Write the peak and put back what was changed."""
        shadow = self.context.shadow
        peak = 0 if shadow is None else shadow.memory.counters()["peak_allocated"]
        self._restore()
        largest, self._largest = self._largest, None
        row = LeanerRow(
            at=self._at if largest is None else largest.at,
            what=self._what,
            changed=self._touched if largest is None else largest.of,
            peak_allocated=peak,
            capacity=self._capacity,
        )
        self.context.add(row)

    def backward_begins(self, call: Backward) -> None:
        """Has the program cleared by now what it found at the step's beginning?"""
        before, self._before = self._before, None
        if before is not None and self.context.in_step:
            now = self._gradients()
            self._kept = {
                number
                for number, seen in before.items()
                if seen != (0, 0) and now.get(number) == seen
            }

    def backward_lost(self, error: Exception) -> None:
        """Without the door gradients are left alone."""
        self._kept = None
        super().backward_lost(error)

    def before_optimizer(self, optimizer: Optimizer) -> None:
        if self.context.pass_name == "leaner" and self._what != "largest":
            self._at = self.context.frames.here()
            self._stepped[id(optimizer)] = optimizer

    def _gradients(self) -> dict[int, Gradient]:
        return {
            id(tensor): _gradient(tensor)
            for optimizer in self._optimizers
            for tensor in tensors_of(optimizer)
        }

    def _clear(self) -> None:
        for optimizer in self._stepped.values():
            tensors = list(tensors_of(optimizer))
            if self._kept is None or not self._kept.isdisjoint(map(id, tensors)):
                continue
            for tensor in tensors:
                self._touched += tensor.grad is not None
                tensor.grad = None

    def _one_by_one(self) -> None:
        for group in (
            group for optimizer in self._stepped.values() for group in groups_of(optimizer)
        ):
            if "foreach" in group and group["foreach"] is not False and not group.get("fused"):
                self._switched.append((group, group["foreach"]))
                group["foreach"] = False
                self._touched += len(group["params"])

    def _restore(self) -> None:
        self._patches.undo()
        if self._what == "largest" and self.context.shadow is not None:
            self._capacity = self.context.shadow.memory.resize(None)
        while self._switched:
            group, value = self._switched.pop()
            group["foreach"] = value


def _gradient(tensor: torch.Tensor) -> Gradient:
    grad = tensor.grad
    return (0, 0) if grad is None else (id(grad), version_of(grad))
