"""Gradients before an optimizer steps: what backward passes add up, what is still there of the step
before, and clipping that runs when there is nothing to clip.
"""

import ctypes
import itertools
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.autograd_graph import Backward, Node, node_of
from auditor.capture.instruments.live_objects import alive
from auditor.capture.instruments.torch_private.autograd import METADATA, OTHER, REDUCTION
from auditor.capture.instruments.torch_private.data import LoaderIterator, yielded
from auditor.capture.instruments.torch_private.tensors import version_of
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import (
    OptimizerProbe,
    PerOptimizer,
    tensors_of,
    watch_clipping,
    watch_clipping_by_value,
)

from ..rows import ClippingRow, MicroBatchRow, UnclearedRow

PARAMETERS = 8
"""Parameters of an optimizer that are followed: some of its first, its last and those between."""


@dataclass
class _Gradient:
    """A parameter's gradient since its optimizer stepped. The version says whether anything has
    written into it since.

    Nothing is kept alive: gradients that the program drops are gone.
    """

    parameter: weakref.ref[torch.Tensor]
    gradient: weakref.ref[torch.Tensor]
    version: int
    cleared: bool = False
    added_to: bool = False

    def look(self) -> None:
        """Before a backward: was it dropped, zeroed or otherwise written since?"""
        parameter, gradient = alive(self.parameter), alive(self.gradient)
        gone = parameter is None or gradient is None or parameter.grad is not gradient
        if gone or _version(gradient) != self.version:
            self.cleared = True

    def look_again(self) -> None:
        version = _version(alive(self.gradient))
        if not self.cleared and version != self.version:
            self.added_to, self.version = True, version


@dataclass
class _Uncleared:
    """One optimizer."""

    row: UnclearedRow
    followed: list[_Gradient] = field(default_factory=list)


class StaleGradsProbe(OptimizerProbe):
    """Writes ``uncleared`` at the pass's end. Of a tensor only its version is read."""

    name = "uncleared"
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watched = PerOptimizer[_Uncleared](OPTIMIZERS)
        self._backward_at: int | None = None

    def start(self) -> None:
        self._watched.clear()
        super().start()

    def stop(self) -> None:
        super().stop()
        for each in self._watched:
            self.context.add(each.row)
        self._watched.clear()

    def backward_begins(self, call: Backward) -> None:
        """Which gradients are still those of the step before?"""
        if not call.nested:
            self._backward_at = self.context.frames.here() if self.context.in_step else None
            for followed in self._all():
                followed.look()

    def backward_ends(self, call: Backward) -> None:
        """Which of them were added to?"""
        if not call.nested:
            for followed in self._all():
                followed.look_again()

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Count the step if its gradients were added to those of the step before; then reset."""
        if not self.watching:
            return
        watched = self._watched.of(optimizer, lambda: _Uncleared(self._row(optimizer)))
        if watched is None:
            return
        watched.row.steps += 1
        if watched.followed and all(
            each.added_to and not each.cleared for each in watched.followed
        ):
            watched.row.piled += 1
            watched.row.backward_at = self._backward_at
        with_gradient: list[Any] = [each for each in tensors_of(optimizer) if each.grad is not None]
        watched.followed = [
            _Gradient(weakref.ref(each), weakref.ref(each.grad), _version(each.grad))
            for each in with_gradient[:: max(1, -(-len(with_gradient) // PARAMETERS))]
        ]

    def _row(self, optimizer: Optimizer) -> UnclearedRow:
        name, at = type(optimizer).__name__, self.context.frames.here()
        return UnclearedRow(at=at, backward_at=None, optimizer=name, steps=0, piled=0)

    def _all(self) -> list[_Gradient]:
        return [followed for watched in self._watched for followed in watched.followed]


def _version(gradient: torch.Tensor | None) -> int:
    return -1 if gradient is None else version_of(gradient)


CLIPS = 256
"""Calls that are remembered at most."""

OPTIMIZERS = 64
"""Optimizers that are followed at most."""


@dataclass(frozen=True)
class _Clip:
    """One call: its optimizer, the gradients that it had, and the backwards before it."""

    number: int
    at: int
    given: frozenset[int]
    there: frozenset[int]
    backwards: int
    first: _Gradient | None
    """Of the first parameter that had one, as it was before the call."""
    again: bool
    """The call of this line before it clipped the same gradient, and one backward added to it."""


class _Clipped:
    """One optimizer since its last step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.steps = 0
        self.backwards = -1
        self.clips = 0
        self.at: int | None = None
        self.misplaced: Counter[tuple[int, bool, bool]] = Counter()


class MisplacedClippingProbe(OptimizerProbe):
    """Writes ``clippings`` at the pass's end. Asks only whether a tensor's gradient is there."""

    name = "clippings"
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watched = PerOptimizer[_Clipped](OPTIMIZERS)
        self._clips: deque[_Clip] = deque(maxlen=CLIPS)
        self._seen = 0
        self._backwards = 0

    def start(self) -> None:
        super().start()
        watch_clipping(self._patches, lambda parameters, _: self._clipping(parameters))
        watch_clipping_by_value(self._patches, self._clipping)

    def stop(self) -> None:
        super().stop()
        for each in self._watched:
            for (at, absent, again), n in each.misplaced.items():
                row = ClippingRow(at=at, optimizer=each.name, steps=each.steps, n=n, absent=absent)
                row.stepped_at, row.again = each.at, again
                self.context.add(row)
        self._watched.clear()
        self._clips.clear()

    def backward_begins(self, call: Backward) -> None:
        if not call.nested:
            self._backwards += 1

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Judge the calls since its last step."""
        if not self.watching:
            return
        watched = self._watched.of(optimizer, lambda: _Clipped(type(optimizer).__name__))
        if watched is None:
            return
        if watched.backwards >= 0:  # it stepped before: all since then was seen
            watched.steps += 1
            watched.at = self.context.frames.here()
            self._judge(watched, {id(each) for each in tensors_of(optimizer)})
        watched.backwards, watched.clips = self._backwards, self._seen

    # -- what happens ------------------------------------------------------------------------------

    def _clipping(self, parameters: Sequence[torch.Tensor]) -> None:
        at = self.context.frames.here() if self.context.in_step else None
        if at is None:
            return
        self._seen += 1
        there = frozenset(id(each) for each in parameters if each.grad is not None)
        given = frozenset(id(each) for each in parameters)
        first = next(
            (
                _Gradient(ref(each), ref(each.grad), _version(each.grad))
                for each in parameters
                if each.grad is not None
            ),
            None,
        )
        before = next((each for each in reversed(self._clips) if each.at == at), None)
        again = before is not None and first is not None and _is_clipped_again(before.first, first)
        self._clips.append(_Clip(self._seen, at, given, there, self._backwards, first, again))

    def _judge(self, watched: _Clipped, own: set[int]) -> None:
        """No call had effect, and a backward ran behind each: what was stepped with is raw. Or a line
        clipped a sum once more.
        """
        since = [each for each in self._clips if each.number > watched.clips and own & each.given]
        lines = Counter(each.at for each in since)
        again = {each.at for each in since if each.again and lines[each.at] > 1}
        watched.misplaced.update((at, False, True) for at in again)
        found: set[tuple[int, bool, bool]] = set()
        for clip in since:
            absent = not own & clip.there
            if not absent and clip.backwards > watched.backwards:
                return
            if clip.backwards < self._backwards:
                found.add((clip.at, absent, False))
        watched.misplaced.update(found)


def _is_clipped_again(before: _Gradient | None, now: _Gradient) -> bool:
    """Nothing has written into a gradient since but the call before and one backward."""
    if before is None:
        return False
    same = before.parameter() is now.parameter() and alive(before.gradient) is alive(now.gradient)
    return same and now.version == before.version + 2


MOST = 16
"""Optimizers that are followed."""

DEEP = 64
"""Nodes of a loss that are looked at."""

HELD: dict[torch.dtype, Any] = {
    torch.float64: ctypes.c_double,
    torch.float32: ctypes.c_float,
    torch.int64: ctypes.c_int64,
}
"""What numbers are in memory: Python's become the first or the last."""

WATCHED = 8
"""Gradients whose versions are compared."""

MEAN, SUM = 1, 2
"""How torch writes ``reduction="mean"`` and ``"sum"`` in a node."""

ROUNDED = 1e-6

PASSES_ON = ("Squeeze", "View", "Reshape", "Clone", "ToCopy", "Unsqueeze", "Alias")
"""Nodes through which a loss goes as it is."""


@dataclass
class _Followed:
    """Backward passes that reached the parameters of one optimizer since these were cleared."""

    parameters: list[ref[torch.Tensor]] = field(default_factory=list)
    passes: list[tuple[int, float]] = field(default_factory=list)
    batches: Counter[int] = field(default_factory=Counter)
    """By the iterator of a loader."""
    epochs: list[int] = field(default_factory=list)
    """Batches that had come when one was an epoch's first."""
    versions: tuple[int, ...] = ()

    def clear(self) -> None:
        self.passes.clear()
        self.batches.clear()
        self.epochs.clear()
        self.versions = ()

    def zeroed(self) -> None:
        """Passes are gone with their batches; batches without one may be for the passes to come."""
        if self.passes:
            self.clear()
        self.versions = ()


class MicroBatchesProbe(OptimizerProbe):
    """Writes ``micro_batches``."""

    name = "micro_batches"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._optimizers: PerOptimizer[_Followed] = PerOptimizer(MOST)
        self._weight, self._on = 0.0, False

    def start(self) -> None:
        super().start()
        self._optimizers.clear()
        if LoaderIterator is None:
            return
        self._patches.around(LoaderIterator, "__next__", after=self._gave)
        self._patches.around(Optimizer, "zero_grad", after=self._cleared)
        self._patches.around(torch.nn.Module, "zero_grad", after=self._module_cleared)
        self._on = True

    def stop(self) -> None:
        self._on = False
        super().stop()
        self._optimizers.clear()

    def _gave(self, batch: Any, iterator: Any) -> None:
        if self.context.in_step and torch.is_grad_enabled():
            for one in self._optimizers:
                if yielded(iterator) == 1:
                    one.epochs.append(one.batches.total())
                one.batches[id(iterator)] += 1

    def _cleared(self, _: None, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        one = self._optimizers.get(optimizer)
        if one is not None:
            one.zeroed()

    def _module_cleared(self, _: None, module: Any, *args: Any, **kwargs: Any) -> None:
        gone = {id(each) for each in module.parameters()}
        for one in self._optimizers:
            if any(id(alive(each)) in gone for each in one.parameters):
                one.zeroed()

    def backward_begins(self, call: Backward) -> None:
        """What its loss is made of is looked at while its graph is there."""
        roots = call.tensors
        one = len(roots) == 1 and roots[0].numel() == 1
        self._weight = _weight(node_of(roots[0])) if one else 0.0

    def backward_ends(self, call: Backward) -> None:
        if call.nested or call.failed or call.inputs:
            return
        at = self.context.frames.here()
        for one in self._optimizers if at is not None else ():
            now = _versions(one.parameters)
            if now != one.versions:
                one.passes.append((at or 0, self._weight))
                one.versions = now

    def before_optimizer(self, optimizer: Optimizer) -> None:
        if not self._on:
            return
        one = self._optimizers.of(optimizer, _Followed)
        if one is None:
            return
        if one.parameters and len({at for at, _ in one.passes}) == 1:
            row = MicroBatchRow(
                at=one.passes[-1][0], optimizer=type(optimizer).__name__, n=len(one.passes)
            )
            row.stepped = self.context.frames.here()
            row.begins, row.crosses = 0 in one.epochs, any(one.epochs)
            row.means = sum(weight > 0 for _, weight in one.passes)
            row.weight, most = min(weights := [weight for _, weight in one.passes]), max(weights)
            row.uneven = most > row.weight * (1.0 + ROUNDED)
            row.batches = max(one.batches.values(), default=0)
            row.changed = _versions(one.parameters) != one.versions
            self.context.add(row)
        one.clear()
        trained = (each for each in tensors_of(optimizer) if each.requires_grad)
        one.parameters = [ref(each) for each in itertools.islice(trained, WATCHED)]


def _versions(parameters: list[ref[torch.Tensor]]) -> tuple[int, ...]:
    found = (getattr(alive(each), "grad", None) for each in parameters)
    return tuple(version_of(each) for each in found if each is not None)


def _weight(root: Node | None) -> float:
    """The largest weight that a sum of means over the batch, as torch's losses and ``mean()`` make
    them, gives to one of these; 0.0 if it holds something else.
    """
    waiting, seen, largest = [(root, 1.0)], 0, 0.0
    while waiting:
        node, weight = waiting.pop()
        seen += 1
        if node is None or seen > DEEP:
            return 0.0
        name = type(node).__name__
        times = _factor(node, name)
        size = _summed(node, name)
        if name.startswith(("AddBackward", "SubBackward", *PASSES_ON)) or times is not None:
            weight *= 1.0 if times is None else abs(times)
            waiting.extend((after, weight) for after, _ in node.next_functions if after is not None)
            continue
        if size and weight * size <= 1.0 + ROUNDED:  # divided by the size of its batch at least
            weight *= size
        elif not name.startswith("MeanBackward") and getattr(node, REDUCTION, None) != MEAN:
            return 0.0
        largest = max(largest, weight)
    return largest


def _factor(node: Node, name: str) -> float | None:
    """What it is multiplied by, where that is a number; one on a device is not waited for."""
    if not name.startswith(("MulBackward", "DivBackward")):
        return None
    other = getattr(node, OTHER, None)
    if isinstance(other, torch.Tensor):
        other = _number(other)
    if not isinstance(other, (int, float)) or not other:
        return None
    return other if name.startswith("Mul") else 1.0 / other


def _number(tensor: torch.Tensor) -> float | None:
    """What is in a tensor of one number on the host. Not by ``item()``: a dispatch mode is given a
    Python number in the place of the tensor that autograd keeps of one, and torch refuses that.
    """
    held = HELD.get(tensor.dtype)
    plain = type(tensor) is torch.Tensor and tensor.device.type == "cpu"
    if held is None or not plain or tensor.numel() != 1 or tensor.requires_grad:
        return None
    address = tensor.data_ptr()
    number: float | None = held.from_address(address).value if address else None
    return number


def _summed(node: Node, name: str) -> int:
    """Samples over which it is a sum: what torch calls ``batchmean`` divides one by them."""
    if not name.startswith("SumBackward") and getattr(node, REDUCTION, None) != SUM:
        return 0
    before, number = next(iter(node.next_functions), (None, 0))
    results = getattr(before, METADATA, ())
    shape = results[number].shape if number < len(results) else ()
    return int(shape[0]) if shape else 0
