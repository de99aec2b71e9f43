"""Updates of weights, and of their averages: how much of them half precision rounds away, and how
much of an average is earlier weights.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.storages import Storages, storage_key
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import Call, Operator, OperatorProbe, Subscriber
from auditor.capture.probes.optim.optimizer_hooks import (
    OptimizerProbe,
    OptimizerSteps,
    PerOptimizer,
    live_optimizers,
    tensors_of,
)

from ...opt.rows import AverageRow
from ..rows import UpdateRow

STEPS = 8
"""Steps of each optimizer that are looked at."""

OPTIMIZERS = 16
PARAMETERS = 256
ELEMENTS = 4096
"""Optimizers, parameters of one and elements of one looked at, at most: the first ones."""

SMALL = 1e-8
"""Gradients below this are left out: adaptive optimizers' epsilon damps their updates."""

PROPORTIONAL = frozenset({"SGD", "ASGD", "LBFGS"})
"""Optimizers whose update is the rate times the gradient; that of the others is about the rate."""

FLOAT32 = 2.0**-24
"""An update of this share of a weight is half a unit in the last place of float32."""

HALF = (torch.float16, torch.bfloat16)


@dataclass
class _Watched:
    """One optimizer; counts stay on their device until the pass is over."""

    row: UpdateRow
    asked: list[torch.Tensor] = field(default_factory=list)
    """How many elements had a gradient that asked for a change."""
    kept: list[torch.Tensor] = field(default_factory=list)
    """How many of them are what they were."""
    before: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """During a step: parameter, a copy of it, and where it was asked to change."""


class HalfUpdatesProbe(OptimizerProbe):
    """Writes ``updates``, when the pass is over.

    Only torch's own optimizers are looked at: others may round at random, or keep what was lost.
    """

    name = "updates"
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watched = PerOptimizer[_Watched](OPTIMIZERS)
        self._cast_at: dict[int, tuple[weakref.ref[torch.Tensor], int | None]] = {}

    def install(self) -> None:
        super().install()
        for name in ("to", "half", "bfloat16"):
            self._always.around(nn.Module, name, after=self._cast)

    def _cast(self, _: Any, model: nn.Module, *__: Any, **___: Any) -> None:
        half = [each for each in model.parameters() if each.dtype in HALF]
        at = self.context.frames.here() if half else None
        for each in half[:PARAMETERS]:
            known = self._cast_at.get(id(each))
            if known is None or known[0]() is not each:  # a later move casts nothing
                self._cast_at[id(each)] = weakref.ref(each), at

    def uninstall(self) -> None:
        super().uninstall()
        self._cast_at.clear()

    def start(self) -> None:
        self._watched.clear()
        super().start()

    def stop(self) -> None:
        super().stop()
        for each in self._watched:
            if each.asked:
                each.row.asked, each.row.kept = sum(map(int, each.asked)), sum(map(int, each.kept))
                self.context.add(each.row)
        self._watched.clear()

    def before_optimizer(self, optimizer: Optimizer) -> None:
        if (
            self.watching
            and self.context.in_step
            and type(optimizer).__module__.startswith("torch.optim.")
        ):
            with torch.no_grad():
                self._look(optimizer)

    def _look(self, optimizer: Optimizer) -> None:
        found_inf = getattr(optimizer, "found_inf", None)
        half = [
            (each, group)
            for group in optimizer.param_groups
            for each in group["params"]
            if each.dtype in HALF and each.grad is not None and each.grad.layout is torch.strided
        ][:PARAMETERS]
        if not half or (found_inf is not None and bool(plain(found_inf))):
            return
        watched = self._watched_of(optimizer, half[0][0].dtype)
        if watched is None or watched.row.steps >= STEPS:
            return
        watched.before.clear()
        casts = {self._cast_at.get(id(each), (None, None))[1] for each, _ in half}
        watched.row.cast_at = casts.pop() if len(casts) == 1 else None
        proportional = type(optimizer).__name__ in PROPORTIONAL
        for parameter, group in half:
            rate = group.get("lr")
            if isinstance(rate, (int, float)) and rate != 0:
                watched.row.rate = max(watched.row.rate, abs(float(rate)))
                values, gradient = sample(parameter).clone(), sample(parameter.grad).float().abs()
                update = abs(float(rate)) * (gradient if proportional else 1.0)
                asked = (gradient > SMALL) & (update > values.float().abs() * FLOAT32)
                watched.before.append((parameter, values, asked))

    def _watched_of(self, optimizer: Optimizer, dtype: torch.dtype) -> _Watched | None:
        return self._watched.of(
            optimizer,
            lambda: _Watched(_row(self.context.frames.here(), type(optimizer).__name__, dtype)),
        )

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Count what is as it was."""
        watched = self._watched.get(optimizer)
        if watched is None or not watched.before:
            return
        counted, watched.before = watched.before, []
        watched.row.steps += 1
        with torch.no_grad():
            for parameter, before, asked in counted:
                watched.asked.append(asked.sum())
                watched.kept.append((asked & (sample(parameter) == before)).sum())


def _row(at: int | None, optimizer: str, dtype: torch.dtype, rate: float = 0.0) -> UpdateRow:
    name = str(dtype).removeprefix("torch.")
    return UpdateRow(at=at, optimizer=optimizer, dtype=name, rate=rate, steps=0, asked=0, kept=0)


def sample(tensor: Any) -> Any:
    """Its first elements."""
    return plain(tensor.detach()).reshape(-1)[:ELEMENTS]


UPDATES = frozenset({"lerp", "add", "sub", "foreach_lerp", "foreach_add", "foreach_sub"})

Noted = list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""A tensor that is written, a copy of it, and where it is asked to change."""


class _Updates(Subscriber):
    """Sums of what each line asked for, and of what is as it was, on their device."""

    in_backward = False

    def __init__(self, probe: AveragesProbe) -> None:
        super().__init__(probe.missed)
        self._probe = probe
        self.rows: dict[int, tuple[UpdateRow, list[Any], list[Any]]] = {}

    def wants(self, operator: Operator) -> bool:
        return operator.writes and operator.name in UPDATES

    def before(self, call: Call) -> Noted | None:
        if self._probe.stepping or call.graph or call.site is None or len(call.args) < 2:
            return None
        given = call.args[1] if isinstance(call.args[1], (list, tuple)) else [call.args[1]]
        lerps, noted = "lerp" in call.operator.name, Noted()
        rate = call.args[2] if lerps and len(call.args) > 2 else call.kwargs.get("alpha", 1)
        for tensor, other in zip(call.written, given, strict=False):
            alike = isinstance(other, torch.Tensor) and tensor.shape == other.shape
            if not (alike and tensor.dtype in HALF and self._probe.averages(tensor)):
                continue
            values, asked = sample(tensor).clone(), sample(other).float()
            update = rate * (asked - values.float() if lerps else asked)
            noted.append((tensor, values, update.abs() > values.float().abs() * FLOAT32))
        return noted if noted and isinstance(rate, (int, float)) else None

    def after(self, call: Call, noted: Noted) -> None:
        rate = call.args[2] if len(call.args) > 2 else call.kwargs.get("alpha", 1)
        row = _row(call.site, "", noted[0][1].dtype, float(rate))
        row, asks, keeps = self.rows.setdefault(call.site or 0, (row, [], []))
        for tensor, before, asked in noted:
            asks.append(asked.sum())
            keeps.append((asked & (sample(tensor) == before)).sum())


MOVES = frozenset(["clone", "to_copy"])
LINEAR = MOVES.union(["add", "copy", "lerp", "mul", "sub"])

Memory = tuple[Any, ...]
"""Storage, offset, shape and strides: an alias (``detach()``) has the same, and a copy has not."""

Shares = dict[Memory, float]
"""Tensors, and how often each is in a sum."""


def memory_of(tensor: torch.Tensor) -> Memory:
    """Where the tensor lies; without a plain storage it is its own."""
    key, inner = storage_key(tensor), plain(tensor)
    if key is None:
        return (id(tensor),)
    return key, inner.storage_offset(), tuple(inner.shape), inner.stride()


def is_mean(*shares: float) -> bool:
    """Two shares that make one, and neither of them is all."""
    return len(shares) == 2 and min(shares) > 0.0 and abs(sum(shares) - 1.0) < 1e-5


@dataclass(frozen=True)
class _Sum:
    """What a tensor holds."""

    shares: Shares
    step: int
    at: Memory = ()
    averaged: int | None = None
    """The line that averaged it, or on an earlier step what it is made of."""
    itself: bool = False
    """It is written with the mean of itself and an alias, or with an alias."""

    def times(self, by: float) -> Shares:
        return {key: share * by for key, share in self.shares.items()}


class _Averages(Subscriber):
    """Follows sums of trained weights and others through a step, in whatever operators:
    ``lerp_``, ``mul_().add_()``, ``d * old + (1 - d) * new``, ``old - w * (old - new)``.
    """

    in_backward = False

    def __init__(self, probe: AveragesProbe) -> None:
        super().__init__(probe.missed)
        self._probe = probe
        self._sums = Storages[_Sum]()
        self.rows: dict[int, tuple[AverageRow, set[int], set[float]]] = {}

    def wants(self, operator: Operator) -> bool:
        return operator.name.removeprefix("foreach_") in LINEAR

    def before(self, call: Call) -> list[_Sum | None] | None:
        probe, args = self._probe, [*call.args, None]
        first = args[0] if isinstance(args[0], (list, tuple)) else [args[0]]
        shapes = (getattr(each, "shape", None) for each in first)
        if probe.stepping or call.graph or probe.shapes.isdisjoint(shapes) or call.site is None:
            return None
        lerps = "lerp" in call.operator.name and len(args) > 3
        weight = args[2] if lerps else call.kwargs.get("alpha", 1)
        second = args[1] if isinstance(args[1], (list, tuple)) else [args[1]] * len(first)
        if not isinstance(weight, (int, float)):
            return None
        return [self._sum(call, x, y, weight) for x, y in zip(first, second, strict=False)]

    def _sum(self, call: Call, x: torch.Tensor, y: Any, weight: float) -> _Sum | None:
        name, one = call.operator.name.removeprefix("foreach_"), self._held(x, bool(call.written))
        if name in MOVES:
            return one
        if name == "mul":
            return replace(one, shares=one.times(y)) if isinstance(y, (int, float)) else None
        if not isinstance(y, torch.Tensor):
            return None
        here, other = memory_of(x), self._held(y)
        if name == "copy":
            return replace(other, itself=here == memory_of(y))
        mine = one.times(1.0 - weight if name == "lerp" else 1.0)
        theirs = other.times(-weight if name == "sub" else weight)
        itself = {*mine} == {*theirs} == {here} and is_mean(*mine.values(), *theirs.values())
        total = {key: mine.get(key, 0.0) + theirs.get(key, 0.0) for key in (*mine, *theirs)}
        averaged = one.averaged if one.averaged is not None else other.averaged
        return _Sum(total, one.step, averaged=averaged, itself=itself)

    def _held(self, tensor: torch.Tensor, written: bool = False) -> _Sum:
        """What is known of it since the step began, else that it is itself, as are trained weights
        that are read: what was done to them is part of them.
        """
        here, known, step = memory_of(tensor), self._sums.of(tensor), self._probe.context.step
        if known is None or known.at != here or (here in self._probe.trained and not written):
            return _Sum({here: 1.0}, step)
        return known if known.step == step else _Sum({here: 1.0}, step, averaged=known.averaged)

    def after(self, call: Call, noted: list[_Sum | None]) -> None:
        site, trained, name = call.site or 0, self._probe.trained, call.operator.name
        for target, made in zip(call.written or call.made, noted, strict=False):
            self._sums.drop(target)
            if made is None:
                continue
            at, olds = memory_of(target), made.shares.keys() - trained
            averages = len(olds) == 1 and is_mean(*made.shares.values())
            itself = made.itself and bool(call.written) and at in trained
            again = at in olds if call.written else made.averaged == site and name not in MOVES
            if itself or (averages and again):
                row = AverageRow(at=site, steps=0, watched=0, n=0, itself=0, copies=False, weight=0)
                row, steps, weights = self.rows.setdefault(site, (row, set(), set()))
                row.n += 1
                row.itself += itself
                row.copies |= "copy" in name
                steps.add(made.step)
                weights.update(round(made.shares[key], 5) for key in made.shares.keys() - olds)
            if not (call.written and (itself or averages)):
                averaged = site if averages and made.averaged is None else made.averaged
                self._sums.lay(target, _Sum(made.shares, made.step, at, averaged))


class AveragesProbe(OperatorProbe):
    """Writes ``updates``: a row for each line outside the optimizer that brings tensors in half
    precision, shaped like trained weights, nearer to others; and ``averages``.
    """

    name = "averages"
    parts = ("updates", "averages")
    passes = frozenset({"numbers"})
    in_rehearsals = True
    unseen = "some averages were not looked at"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.stepping = False
        self.steps: set[int] = set()
        self.shapes: set[torch.Size | None] = set()
        self.trained: set[Memory] = set()
        """What optimizers hold."""
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._watch: _Updates | None = None
        self._averages: _Averages | None = None
        self._told = OptimizerSteps(
            before=self.guarded(self._begins), after=self.guarded(self._ends)
        )

    def install(self) -> None:
        self._always.on_undo(self._told.uninstall)
        self._told.install()

    def _begins(self, optimizer: Optimizer) -> None:
        self.stepping = True

    def _ends(self, *optimizers: Optimizer) -> None:
        self.stepping = False
        if self._watch is not None:
            self._optimizers.update(optimizers)
            held = [each for optimizer in self._optimizers for each in tensors_of(optimizer)]
            self.trained, self.shapes = set(map(memory_of, held)), {each.shape for each in held}

    def averages(self, tensor: torch.Tensor) -> bool:
        """It is shaped like what an optimizer steps, and is none of that."""
        return tensor.shape in self.shapes and memory_of(tensor) not in self.trained

    def watch(self) -> None:
        for part in self.parts:
            self.context.writer.touch(part)
        self._watch, self._averages = _Updates(self), _Averages(self)
        self._ends(*live_optimizers())
        self.enter(self._watch)
        self.enter(self._averages)

    def step_end(self) -> None:
        self.steps.add(self.context.step)

    def stop(self) -> None:
        super().stop()
        updates, self._watch = self._watch, None
        for row, asked, kept in updates.rows.values() if updates is not None else ():
            row.steps, row.asked, row.kept = len(self.steps), int(sum(asked)), int(sum(kept))
            self.context.add(row)
        averages, self._averages = self._averages, None
        for average, steps, weights in averages.rows.values() if averages is not None else ():
            average.steps, average.watched = len(steps), len(self.steps)
            average.n, average.itself = average.n // len(steps), average.itself // len(steps)
            average.weight = weights.pop() if len(weights) == 1 else 0.0
            self.context.add(average)
        self.trained.clear()
        self.steps.clear()
