"""Whether two runs computed the same: losses in their order and parameters at the end, bit for bit
or within a stated tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from auditor.model import Edit
from auditor.recordings.folder import Recording
from auditor.recordings.schema.compare import LossRow, ParameterRow

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
    names: dict[str, str] = field(default_factory=dict, compare=False)
    """What a module calls them, by their places in the optimizers."""

    @classmethod
    def read(cls, recording: Recording) -> Results:
        """From the ``results`` part."""
        losses = (float.fromhex(row.value) for row in recording.rows(LossRow))
        rows = list(recording.rows(ParameterRow))
        parameters = ((row.place, float.fromhex(row.value), row.bits) for row in rows)
        return cls(tuple(losses), tuple(parameters), {row.place: row.name for row in rows})

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
        said = before.names.get(place) or place
        if not _near(one, other, tolerance):
            return (
                f"{said} ends with norm {other:.9g} instead of {one:.9g}, though all losses agree"
            )
        if bits != others and not tolerance:
            return f"{said} ends with other bits, though all losses agree"
    return ""


def _near(one: float, other: float, tolerance: float) -> bool:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return True
    return abs(one - other) <= tolerance * max(abs(one), abs(other))
