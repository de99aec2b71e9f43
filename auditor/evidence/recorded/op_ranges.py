"""Delicate operators as they ran: the dtype they had, what they were given, what came before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Rows, Table
from auditor.recordings.schema.numerics import NumericRow

SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}
"""Smallest positive number of a dtype, subnormal ones included (IEEE 754; bfloat16 has the exponent
of float32).
"""

LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895e38,
    "float32": 3.4028235e38,
    "float64": 1.7976931e308,
}
"""Largest finite number of a dtype."""


def vanishes(call: NumericRow) -> bool:
    """True if the epsilon rounds to zero: half of the smallest number does, to even."""
    return call.scalar <= SMALLEST.get(call.dtype, 0.0) / 2


def facts_of(call: NumericRow) -> tuple[tuple[str, str], ...]:
    """Rows for the report."""
    known = call.low is not None and call.high is not None
    given = f"{call.low:.4g} to {call.high:.4g}" if known else "unknown"
    made = "of the result" if call.what == "output" else "of the input"
    rows = (
        ("operator", call.op),
        ("dtype that ran", call.dtype),
        (f"range {made}", given),
        ("input made by", call.feed),
        ("inside", call.library or "the line itself"),
    )
    return tuple((label, text) for label, text in rows if text)


@dataclass(frozen=True)
class OpRanges(Table):
    """All of the pass ``numbers``; ``steps`` are those that it watched."""

    parts: ClassVar[tuple[str, ...]] = ("numerics",)
    of_values: ClassVar[bool] = True

    steps: int = 0
    calls: tuple[NumericRow, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> OpRanges:
        """From the pass ``numbers``."""
        calls = tuple(evidence.get(Rows[NumericRow]))
        return cls(evidence.steps_of("numbers"), calls)

    def of(self, what: str) -> Iterator[NumericRow]:
        """Calls of one kind."""
        return (each for each in self.calls if each.what == what)

    @property
    def loss_lost(self) -> int:
        """Backwards that began at a loss which was not finite, where all of two or more did."""
        losses = list(self.of("loss"))
        n = sum(each.n for each in losses)
        return n if n > 1 and n == sum(each.overflowed for each in losses) else 0

    def per_step(self, call: NumericRow) -> float:
        """Calls in each watched step."""
        return call.n / max(1, self.steps)
