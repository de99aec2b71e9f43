"""Whether two runs trained alike though they cut their batches differently: the loss of each
optimizer step, and how parameters moved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from auditor.extensions.verify.results import Agreement
from auditor.recordings.folder import Recording
from auditor.recordings.schema import MovedParameterRow, MovedStepsRow

LOSS_TOLERANCE = 1e-5
"""Largest relative difference between the losses of one optimizer step (those of its micro-batches
added up). Adding float32 numbers in another order changes such a loss by up to 2e-7; masks that
leave micro-batches unequally full change it by 5e-4."""

MOVE_TOLERANCE = 2e-3
"""Largest distance between the parameters that two runs end with, as a share of how far they moved.
Measured after 20 steps of three models with four optimizers: up to 1e-6 by rounding alone, up to
3e-4 where Adam divides a gradient that is zero but for its rounding by its own size (keys' biases
of an attention); from 2e-2 on with batch norm or unequal masks (docs/verified.md)."""


@dataclass(frozen=True)
class Moves:
    """Optimizer steps of the passes; of each parameter its place, its size, some values before the
    first and after the last.
    """

    steps: int
    parameters: tuple[tuple[str, int, tuple[float, ...], tuple[float, ...]], ...]

    @classmethod
    def read(cls, recording: Recording) -> Moves:
        """From the ``moves`` part."""
        moved = recording.rows(MovedParameterRow)
        parameters = tuple(
            (row.place, row.size, _numbers(row.before), _numbers(row.after)) for row in moved
        )
        return cls(sum(row.n for row in recording.rows(MovedStepsRow)), parameters)


def _numbers(values: list[float | None]) -> tuple[float, ...]:
    """JSON has null for what is not finite."""
    return tuple(math.nan if value is None else value for value in values)


@dataclass(frozen=True)
class Training:
    """What a run computed, with ``count`` micro-batches in each optimizer step."""

    losses: tuple[float, ...]
    moves: Moves
    count: int

    @property
    def sums(self) -> tuple[float, ...]:
        """The loss of each optimizer step."""
        return tuple(
            math.fsum(self.losses[at : at + self.count])
            for at in range(0, len(self.losses), self.count)
        )


def alike(before: Training, after: Training) -> Agreement:
    """Compare the program as it is with one whose micro-batches are others."""
    parted = _parted(before, after)
    if parted:
        return Agreement(same=False, note=parted)
    loss, move = _loss_distance(before.sums, after.sums), _distance(before.moves, after.moves)
    if not loss <= LOSS_TOLERANCE:
        return Agreement(
            same=False,
            note=f"the losses of its optimizer steps differ by up to {loss:.1e} of their size",
        )
    if not move <= MOVE_TOLERANCE:
        return Agreement(
            same=False,
            note=f"its parameters end {move:.1e} of how far they moved from where they should",
        )
    steps = before.moves.steps
    return Agreement(
        same=True,
        note=f"after {steps} optimizer steps on the same samples, "
        f"losses within {LOSS_TOLERANCE:g} of their size ({loss:.0e}) and "
        f"parameters within {MOVE_TOLERANCE:g} of how far they moved ({move:.0e}): no more than "
        "rounding in another order",
    )


def _parted(before: Training, after: Training) -> str:
    one, other = before.moves, after.moves
    if not one.steps or not one.parameters:
        return "no optimizer steps were seen"
    for training in (before, after):
        if len(training.losses) != training.moves.steps * training.count:
            calls, steps = len(training.losses), training.moves.steps
            return (
                f"backward was called {calls} times for {steps} optimizer steps, not "
                f"{training.count} times for each"
            )
    if one.steps != other.steps:
        return f"it made {other.steps} optimizer steps instead of {one.steps}"
    if [place[:2] for place in one.parameters] != [place[:2] for place in other.parameters]:
        return "the optimizers hold other parameters"
    return ""


def _loss_distance(before: Sequence[float], after: Sequence[float]) -> float:
    return max(
        abs(one - other) / (max(abs(one), abs(other)) or 1.0)
        if math.isfinite(one) and math.isfinite(other)
        else math.inf
        for one, other in zip(before, after, strict=True)
    )


def _distance(before: Moves, after: Moves) -> float:
    """Between the ends, as a share of the way from the start; not a number where a parameter is
    none.
    """
    apart = way = 0.0
    for (_, size, start, end), (*_, other) in zip(before.parameters, after.parameters, strict=True):
        weight = size / max(1, len(end))  # each value stands for so many
        apart += weight * math.fsum((one - two) ** 2 for one, two in zip(end, other, strict=True))
        way += weight * math.fsum((one - two) ** 2 for one, two in zip(end, start, strict=True))
    return math.sqrt(apart / way) if way else math.inf
