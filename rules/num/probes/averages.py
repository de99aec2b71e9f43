"""Updates of weights, and of their averages, in half precision: how much of them is rounded away."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import Call, Operator, OperatorProbe, Subscriber
from auditor.capture.probes.optim.optimizer_hooks import (
    OptimizerProbe,
    OptimizerSteps,
    PerOptimizer,
    tensors_of,
)

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

    name: str
    at: int | None
    dtype: str
    rate: float = 0.0
    steps: int = 0
    asked: list[torch.Tensor] = field(default_factory=list)
    """How many elements had a gradient that asked for a change."""
    kept: list[torch.Tensor] = field(default_factory=list)
    """How many of them are what they were."""
    cast_at: int | None = None
    """The only line that made its parameters half precision."""
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
                asked, kept = (
                    sum(int(count) for count in counts) for counts in (each.asked, each.kept)
                )
                row = UpdateRow(
                    at=each.at,
                    cast_at=each.cast_at,
                    optimizer=each.name,
                    dtype=each.dtype,
                    rate=each.rate,
                    steps=each.steps,
                    asked=asked,
                    kept=kept,
                )
                self.context.add(row)
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
        if watched is None or watched.steps >= STEPS:
            return
        watched.before.clear()
        casts = {self._cast_at.get(id(each), (None, None))[1] for each, _ in half}
        watched.cast_at = casts.pop() if len(casts) == 1 else None
        proportional = type(optimizer).__name__ in PROPORTIONAL
        for parameter, group in half:
            rate = group.get("lr")
            if isinstance(rate, (int, float)) and rate != 0:
                watched.rate = max(watched.rate, abs(float(rate)))
                values, gradient = sample(parameter).clone(), sample(parameter.grad).float().abs()
                update = abs(float(rate)) * (gradient if proportional else 1.0)
                asked = (gradient > SMALL) & (update > values.float().abs() * FLOAT32)
                watched.before.append((parameter, values, asked))

    def _watched_of(self, optimizer: Optimizer, dtype: torch.dtype) -> _Watched | None:
        return self._watched.of(
            optimizer,
            lambda: _Watched(
                type(optimizer).__name__,
                self.context.frames.here(),
                str(dtype).removeprefix("torch."),
            ),
        )

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Count what is as it was."""
        watched = self._watched.get(optimizer)
        if watched is None or not watched.before:
            return
        counted, watched.before = watched.before, []
        watched.steps += 1
        with torch.no_grad():
            for parameter, before, asked in counted:
                watched.asked.append(asked.sum())
                watched.kept.append((asked & (sample(parameter) == before)).sum())


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
        dtype = str(noted[0][1].dtype).removeprefix("torch.")
        rate = call.args[2] if len(call.args) > 2 else call.kwargs.get("alpha", 1)
        row = UpdateRow(
            at=call.site, optimizer="", dtype=dtype, rate=float(rate), steps=0, asked=0, kept=0
        )
        row, asks, keeps = self.rows.setdefault(call.site or 0, (row, [], []))
        row.steps = len(self._probe.steps)
        for tensor, before, asked in noted:
            asks.append(asked.sum())
            keeps.append((asked & (sample(tensor) == before)).sum())


class AveragesProbe(OperatorProbe):
    """Writes ``updates``: a row for each line outside the optimizer that brings tensors in half
    precision, shaped like trained weights, nearer to others.
    """

    name = "averages"
    parts = ("updates",)
    passes = frozenset({"numbers"})
    in_rehearsals = True
    unseen = "some averages were not looked at"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.stepping = False
        self.steps: set[int] = set()
        self._shapes: set[torch.Size] = set()
        self._trained: set[int] = set()
        self._watch: _Updates | None = None
        self._told = OptimizerSteps(
            before=self.guarded(self._begins), after=self.guarded(self._ends)
        )

    def install(self) -> None:
        self._always.on_undo(self._told.uninstall)
        self._told.install()

    def _begins(self, optimizer: Optimizer) -> None:
        self.stepping = True

    def _ends(self, optimizer: Optimizer) -> None:
        self.stepping = False
        if self._watch is not None:
            self._shapes.update(each.shape for each in tensors_of(optimizer))
            self._trained.update(map(id, tensors_of(optimizer)))

    def averages(self, tensor: torch.Tensor) -> bool:
        """It is shaped like what an optimizer steps, and is none of that."""
        self.steps.add(self.context.step)
        return tensor.shape in self._shapes and id(tensor) not in self._trained

    def watch(self) -> None:
        self.context.writer.touch("updates")
        self._watch = _Updates(self)
        self.enter(self._watch)

    def stop(self) -> None:
        super().stop()
        watch, self._watch = self._watch, None
        for row, asked, kept in watch.rows.values() if watch is not None else ():
            row.asked, row.kept = int(sum(asked)), int(sum(kept))
            self.context.add(row)
        self._trained.clear()
        self.steps.clear()
