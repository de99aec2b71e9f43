"""Averages of weights: how much of one is earlier weights."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.storages import Storages, storage_key
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import Call, Operator, OperatorProbe, Subscriber
from auditor.capture.probes.optim.optimizer_hooks import OptimizerSteps, live_optimizers, tensors_of

from ..rows import AverageRow

MOVES = frozenset(["clone", "to_copy"])
LINEAR = MOVES.union(["add", "copy", "lerp", "mul", "sub"])

Memory = tuple[Any, ...]
"""Storage, offset, shape and strides: an alias (``detach()``) has the same, and a copy has not."""

Shares = dict[Memory, float]
"""Tensors and how often each is in a sum."""


def memory_of(tensor: torch.Tensor) -> Memory:
    """Where the tensor lies; of one without a plain storage it is its own."""
    key, inner = storage_key(tensor), plain(tensor)
    if key is None:
        return (id(tensor),)
    return key, inner.storage_offset(), tuple(inner.shape), inner.stride()


def scaled(shares: Shares, by: float) -> Shares:
    """The sum times a number."""
    return {key: share * by for key, share in shares.items()}


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
    """What is written is the mean of a tensor and an alias of it, or a copy of it onto itself."""


@dataclass
class _Line:
    """What a line averages."""

    n: int = 0
    itself: int = 0
    copies: bool = False
    weights: set[float] = field(default_factory=set)
    steps: set[int] = field(default_factory=set)


class _Averages(Subscriber):
    """Follows sums of trained weights and others through a step, in whatever operators:
    ``lerp_``, ``mul_().add_()``, ``d * old + (1 - d) * new``, ``old - w * (old - new)``.
    """

    in_backward = False

    def __init__(self, probe: WeightAveragesProbe) -> None:
        super().__init__(probe.missed)
        self._probe = probe
        self._sums = Storages[_Sum]()
        self.lines: dict[int, _Line] = {}

    def wants(self, operator: Operator) -> bool:
        return operator.name.removeprefix("foreach_") in LINEAR

    def before(self, call: Call) -> list[_Sum | None] | None:
        probe, args = self._probe, [*call.args, None]
        first = args[0] if isinstance(args[0], (list, tuple)) else [args[0]]
        shapes = (getattr(each, "shape", None) for each in first)
        if probe.stepping or call.graph or probe.shapes.isdisjoint(shapes) or call.site is None:
            return None
        name = call.operator.name.removeprefix("foreach_")
        weight = args[2] if name == "lerp" and len(args) > 3 else call.kwargs.get("alpha", 1)
        second = args[1] if isinstance(args[1], (list, tuple)) else [args[1]] * len(first)
        if not isinstance(weight, (int, float)):
            return None
        return [self._sum(name, call, x, y, weight) for x, y in zip(first, second, strict=False)]

    def _sum(self, name: str, call: Call, x: torch.Tensor, y: Any, weight: float) -> _Sum | None:
        one, step = self._held(x, writes=bool(call.written)), self._probe.context.step
        if name in MOVES:
            return one
        if name == "mul":
            factor = isinstance(y, (int, float))
            return _Sum(scaled(one.shares, y), step, averaged=one.averaged) if factor else None
        if not isinstance(y, torch.Tensor):
            return None
        here, there, other = memory_of(x), memory_of(y), self._held(y)
        if name == "copy":
            return _Sum(other.shares, step, averaged=other.averaged, itself=here == there)
        mine = scaled(one.shares, 1.0 - weight if name == "lerp" else 1.0)
        theirs = scaled(other.shares, -weight if name == "sub" else weight)
        averaged = one.averaged if one.averaged is not None else other.averaged
        itself = {*mine} == {*theirs} == {here} and is_mean(*mine.values(), *theirs.values())
        total = {key: mine.get(key, 0.0) + theirs.get(key, 0.0) for key in (*mine, *theirs)}
        return _Sum(total, step, averaged=averaged, itself=itself)

    def _held(self, tensor: torch.Tensor, *, writes: bool = False) -> _Sum:
        """What is known of it since the step began, else that it is itself, as are trained weights
        that are read: what was done to them is part of them.
        """
        here, known, step = memory_of(tensor), self._sums.of(tensor), self._probe.context.step
        if known is None or known.at != here or (here in self._probe.trained and not writes):
            return _Sum({here: 1.0}, step)
        return known if known.step == step else _Sum({here: 1.0}, step, averaged=known.averaged)

    def after(self, call: Call, noted: list[_Sum | None]) -> None:
        for target, made in zip(call.written or call.made, noted, strict=False):
            if made is None:
                self._sums.drop(target)
                continue
            at, trained, site = memory_of(target), self._probe.trained, call.site or 0
            olds = [key for key in made.shares if key not in trained]
            averages = len(olds) == 1 and is_mean(*made.shares.values())
            known = made.averaged == site and call.operator.name not in MOVES
            known = at == olds[0] if call.written and averages else known
            itself = made.itself and bool(call.written) and at in trained
            if itself or (averages and known and at not in trained):
                line = self.lines.setdefault(site, _Line())
                line.n += 1
                line.steps.add(made.step)
                line.itself += itself
                line.copies |= "copy" in call.operator.name
                line.weights |= {
                    round(made.shares[key], 5) for key in made.shares if key not in olds
                }
            if call.written and (itself or averages or "copy" in call.operator.name):
                self._sums.drop(target)
            else:
                averaged = site if averages and made.averaged is None else made.averaged
                self._sums.lay(target, _Sum(made.shares, made.step, at, averaged))


class WeightAveragesProbe(OperatorProbe):
    """Writes ``averages``, when the pass is over."""

    name = "weight_averages"
    parts = ("averages",)
    passes = frozenset({"numbers"})
    in_rehearsals = True
    unseen = "some averages of weights were not looked at"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.stepping = False
        self.trained: set[Memory] = set()
        """What optimizers hold."""
        self.shapes: set[torch.Size | None] = set()
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._steps = 0
        self._watch: _Averages | None = None
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

    def watch(self) -> None:
        self.context.writer.touch("averages")
        self._steps, self._watch = 0, _Averages(self)
        self._ends(*live_optimizers())
        self.enter(self._watch)

    def step_end(self) -> None:
        self._steps += 1

    def stop(self) -> None:
        super().stop()
        watch, self._watch = self._watch, None
        for at, line in watch.lines.items() if watch is not None else ():
            self.context.add(
                AverageRow(
                    at=at,
                    steps=len(line.steps),
                    watched=self._steps,
                    n=line.n // len(line.steps),
                    itself=line.itself // len(line.steps),
                    copies=line.copies,
                    weight=max(line.weights) if len(line.weights) == 1 else 0.0,
                )
            )
        self.trained.clear()
