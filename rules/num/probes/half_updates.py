"""Updates of weights in half precision: how much of them is rounded away."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import (
    OptimizerProbe,
    PerOptimizer,
)

from ..rows import UpdateRow

STEPS = 8
"""Steps of each optimizer that are looked at."""

OPTIMIZERS = 16
PARAMETERS = 256
ELEMENTS = 4096
"""Optimizers, parameters of one and elements of a parameter that are looked at, at most: the first
ones.
"""

SMALL = 1e-8
"""Gradients below this are left out: the epsilon of adaptive optimizers damps their updates,
whatever the dtype.
"""

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
    before: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """During a step: parameter, a copy of it, and where it was asked to change."""


class HalfUpdatesProbe(OptimizerProbe):
    """Writes ``updates``, when the pass is over.

    Only torch's own optimizers are looked at: others may round at random, or keep what was lost.
    """

    name = "updates"
    parts = ("updates",)
    passes = frozenset({"loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watched = PerOptimizer[_Watched](OPTIMIZERS)
        self._watching = False

    def start(self) -> None:
        self._watched.clear()
        self._watching = True
        super().start()

    def stop(self) -> None:
        """Read the counts and write one row for each optimizer of half precision."""
        self._watching = False
        for each in self._watched:
            if each.asked:
                asked, kept = (
                    sum(int(count) for count in counts) for counts in (each.asked, each.kept)
                )
                row = UpdateRow(
                    at=each.at,
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
        """Look, where it is time to."""
        if (
            self._watching
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
