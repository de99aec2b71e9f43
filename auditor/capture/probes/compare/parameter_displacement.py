"""How far training moved: values of each parameter before its optimizer's first step and at the
end. For ``audit verify``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.probes.base import Context
from auditor.capture.probes.compare.training_results import OPTIMIZERS
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, groups_of
from auditor.recordings.schema import MovedParameterRow, MovedStepsRow

SAMPLED = 256
"""Values of a parameter that are kept at most, evenly spread: what changes how a model is trained
moves nearly all of them.
"""

PARAMETERS = 1000
"""Parameters that are sampled at most."""


class ParameterDisplacementProbe(OptimizerProbe):
    """Writes ``moves``: a row with the number of optimizer steps in the passes, and one for each
    parameter with its values before and after.
    """

    name = "moves"
    parts = ("moves",)
    passes = frozenset({"warmup", "quiet"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._steps: int | None = None
        self._optimizers: dict[int, tuple[Optimizer, dict[tuple[str, int], list[float]]]] = {}

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Keep where its parameters begin."""
        if id(optimizer) not in self._optimizers and len(self._optimizers) < OPTIMIZERS:
            self._optimizers[id(optimizer)] = optimizer, dict(_sampled(optimizer))

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Count those of the passes: a script's first step ends before they begin, and its losses
        are not seen either.
        """
        if self._steps is not None:
            self._steps += 1

    def start(self) -> None:
        """Begin to count."""
        self._steps = self._steps or 0

    def stop(self) -> None:
        """At the end of what is compared: write where they are now."""
        if self.context.pass_name != "quiet" or not self._steps:
            return
        self.context.add(MovedStepsRow(n=self._steps))
        for number, (optimizer, before) in enumerate(self._optimizers.values()):
            for (place, size), after in _sampled(optimizer):
                where, start = f"optimizer {number}, {place}", before.get((place, size), [])
                self.context.add(
                    MovedParameterRow(place=where, size=size, before=[*start], after=[*after])
                )
        self._optimizers.clear()
        self._steps = None


def _sampled(optimizer: Optimizer) -> Iterator[tuple[tuple[str, int], list[float]]]:
    """Place and size of its parameters, with some of their values."""
    number = 0
    for g, group in enumerate(groups_of(optimizer)):
        for p, parameter in enumerate(group["params"]):
            number += 1
            if (
                number <= PARAMETERS
                and not parameter.is_sparse
                and not hasattr(parameter, "placements")
            ):
                yield (f"group {g}, parameter {p}", parameter.numel()), _values(parameter.detach())


def _values(value: torch.Tensor) -> list[float]:
    flat = value.reshape(-1) if not value.is_complex() else torch.view_as_real(value).reshape(-1)
    spread = torch.linspace(
        0, max(0, flat.numel() - 1), min(SAMPLED, flat.numel()), dtype=torch.float64
    ).long()
    kept: list[Any] = flat[spread.to(flat.device)].double().tolist()
    return kept
