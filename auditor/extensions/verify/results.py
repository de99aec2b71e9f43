"""Whether two runs computed the same: losses in their order and parameters at the end, bit for bit
or within a stated tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from auditor.model import Edit
from auditor.recordings.folder import Recording
from auditor.recordings.schema.compare import (
    LossRow,
    MovedParameterRow,
    MovedStepsRow,
    ParameterRow,
)

REORDERING = {
    "fused": "a fused optimizer rounds in another order",
    "foreach": "a multi-tensor optimizer rounds in another order",
    "memory_format": "another layout chooses kernels that add in another order",
}
"""Keywords whose change may round differently without being wrong, and why. All other patches must
keep every bit.
"""

TOLERANCE = 1e-3
"""Largest relative difference of a loss, or of a parameter's norm, that is put down to rounding
where rounding may differ. float32 rounds at 6e-8; a few ten steps of training amplify a difference
of one rounding by some thousands at most."""


@dataclass(frozen=True)
class Results:
    """What one run computed: losses, and for each parameter its norm and the sum of its bit
    patterns (None: not known).
    """

    losses: tuple[float, ...]
    parameters: tuple[tuple[str, float, int | None], ...]

    @classmethod
    def read(cls, recording: Recording) -> Results:
        """From the ``results`` part."""
        losses = (float.fromhex(row.value) for row in recording.rows(LossRow))
        parameters = (
            (row.place, float.fromhex(row.value), row.bits) for row in recording.rows(ParameterRow)
        )
        return cls(tuple(losses), tuple(parameters))

    @property
    def any(self) -> bool:
        """True if there is anything to compare."""
        return bool(self.losses or self.parameters)


@dataclass(frozen=True)
class Agreement:
    """``same`` says whether the results agree; ``note`` how closely, or where they part."""

    same: bool
    note: str


def tolerance_for(edits: Iterable[Edit]) -> tuple[float, str]:
    """What difference is allowed after these edits, and why; (0, "") where every bit must stay."""
    reasons = dict.fromkeys(
        REORDERING[edit.keyword] for edit in edits if edit.keyword in REORDERING
    )
    return (TOLERANCE, "; ".join(reasons)) if reasons else (0.0, "")


def agree(before: Results, after: Results, tolerance: float = 0.0, reason: str = "") -> Agreement:
    """Compare what two runs computed, from the same seeds."""
    if before == after:
        return Agreement(same=True, note=f"{_counted(before)} bit-identical")
    parted = _parted(before, after, tolerance)
    if parted:
        return Agreement(same=False, note=parted)
    return Agreement(
        same=True, note=f"{_counted(before)} within {tolerance:g} of each other ({reason})"
    )


def largest_difference(before: Sequence[float], after: Sequence[float]) -> float:
    """Of losses, relative to the larger of two; 0.0 where there are none, infinite where one is not
    finite.
    """
    return max(
        (
            abs(one - other) / (max(abs(one), abs(other)) or 1.0)
            if math.isfinite(one) and math.isfinite(other)
            else math.inf
            for one, other in zip(before, after, strict=False)
        ),
        default=0.0,
    )


def _counted(results: Results) -> str:
    steps, parameters = len(results.losses), len(results.parameters)
    return f"{steps} loss{'es' * (steps != 1)} and {parameters} parameter{'s' * (parameters != 1)}"


def _parted(before: Results, after: Results, tolerance: float) -> str:
    """Where the two differ by more than the tolerance, in a sentence; empty if nowhere."""
    for number, (one, other) in enumerate(zip(before.losses, after.losses, strict=False), 1):
        if not _near(one, other, tolerance):
            return f"loss {number} is {other:.9g} instead of {one:.9g}"
    if len(before.losses) != len(after.losses):
        return f"backward was called on {len(after.losses)} losses instead of {len(before.losses)}"
    if [place for place, _, _ in before.parameters] != [place for place, _, _ in after.parameters]:
        return "the optimizers hold other parameters"
    for (place, one, bits), (_, other, others) in zip(
        before.parameters, after.parameters, strict=True
    ):
        if not _near(one, other, tolerance):
            return (
                f"{place} ends with norm {other:.9g} instead of {one:.9g}, though all losses agree"
            )
        if bits != others and not tolerance:
            return f"{place} ends with other bits, though all losses agree"
    return ""


def _near(one: float, other: float, tolerance: float) -> bool:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return True
    return abs(one - other) <= tolerance * max(abs(one), abs(other))


# -- trained alike ---------------------------------------------------------------------------------


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
    apart = _trained_apart(before, after)
    if apart:
        return Agreement(same=False, note=apart)
    loss, move = largest_difference(before.sums, after.sums), _distance(before.moves, after.moves)
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


def _trained_apart(before: Training, after: Training) -> str:
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
