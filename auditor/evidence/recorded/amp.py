"""Mixed precision as it ran: autocast, GradScaler, and what was clipped while scaled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.lines import Line, Lines
from auditor.evidence.table import Evidence, Rows, Table, by_line
from auditor.model import Site
from auditor.recordings.schema.numerics import AmpRow, NumericRow

NO_EVENTS = ("update", "growth")
"""Rows of the pass's end."""


def skipped(update: AmpRow) -> bool:
    """True if the gradients were not finite: the scale is lower then."""
    return (update.after or 0.0) < (update.before or 0.0)


@dataclass(frozen=True)
class Amp(Table):
    """What happened in the loud pass. ``updates``: ``GradScaler.update``, both scales."""

    parts: ClassVar[tuple[str, ...]] = ("amp", "steps")

    steps: int = 0
    events: tuple[AmpRow, ...] = ()
    updates: tuple[AmpRow, ...] = ()
    intervals: tuple[float, ...] = ()
    """``growth_interval`` of the scalers that scaled a loss."""
    not_updated: Site | None = None
    """Where torch refused a second ``step`` without an ``update()`` between; the run ended."""

    @classmethod
    def without_parts(cls, evidence: Evidence) -> Amp | None:
        """What ended the run, if that was a missing ``update()``."""
        site = _not_updated(evidence)
        return None if site is None else cls(not_updated=site)

    @classmethod
    def build(cls, evidence: Evidence) -> Amp:
        """From the loud pass."""
        rows = evidence.get(Lines[AmpRow])
        null = evidence.recording.device.null  # zeros, whatever the scale
        return cls(
            rows.steps,
            tuple(row for row in rows if row.what not in NO_EVENTS),
            tuple(
                row for row in rows if row.what == "update" and not null and None not in row.scale
            ),
            tuple(row.before or 0.0 for row in rows if row.what == "growth"),
            _not_updated(evidence),
        )

    def lines(self, what: str) -> Iterator[Line[AmpRow]]:
        """Where it happened, by file and line."""
        for rows in by_line(each for each in self.events if each.what == what):
            yield Line(rows[0].site, tuple(rows), self.steps)

    @property
    def dtypes(self) -> set[str]:
        """In which autocast ran."""
        return {
            each.dtype or ""
            for each in self.events
            if each.what in ("autocast", "autocast_no_grad")
        }

    @property
    def skipped(self) -> tuple[AmpRow, ...]:
        """Updates after a step that was skipped."""
        return tuple(each for each in self.updates if skipped(each))


NOT_UPDATED = "step() has already been called since the last update()"
"""What torch says of a second ``step``; of a second ``unscale_`` likewise, maybe alone."""


def _not_updated(evidence: Evidence) -> Site | None:
    error = evidence.recording.manifest.get("error") or {}
    file, line = error.get("file"), error.get("line")
    if NOT_UPDATED not in str(error.get("message") or "") or not file or line is None:
        return None
    return evidence.recording.site_at(file, line, error.get("function") or "")


# -- op ranges -------------------------------------------------------------------------------------
# Delicate operators as they ran: the dtype they had, what they were given, what came before.


SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}
"""Smallest positive number of a dtype, subnormal too (bfloat16 has float32's exponent)."""

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
        ("input created by", call.feed),
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
