"""Averages of weights in half precision: how much of their updates is rounded away."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import Call, Operator, OperatorProbe, Subscriber
from auditor.capture.probes.optim.optimizer_hooks import OptimizerSteps, tensors_of

from ..rows import UpdateRow
from .half_updates import FLOAT32, HALF, sample

UPDATES = frozenset({"lerp", "add", "sub", "foreach_lerp", "foreach_add", "foreach_sub"})

Noted = list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""A tensor that is written, a copy of it, and where it is asked to change."""


class _Updates(Subscriber):
    """Sums of what each line asked for, and of what is as it was, on their device."""

    in_backward = False

    def __init__(self, probe: AveragesProbe) -> None:
        super().__init__(probe.fail)
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
