"""Lines that hold more at the end of each step: a tensor that is made anew, and larger, every time
(``bank = torch.cat([bank, z])``).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import ClassVar

from auditor.evidence.recorded.trend import Trend
from auditor.evidence.snapshot.by_line import held_at, told
from auditor.evidence.snapshot.file import snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.segments import origins_of
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.recordings.schema.run import StepRow
from auditor.rule import NotLooked


@dataclass(frozen=True)
class GrowingLine:
    """What one line's blocks held at the end of each step, in bytes."""

    site: Site
    held: Trend = field(default_factory=Trend)


@dataclass(frozen=True)
class GrowingLines(Table):
    """Lines that held more at the end than at the beginning, by growth; empty where there is no
    history or the steps' times are unknown.
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    lines: tuple[GrowingLine, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> GrowingLines:
        """From the history of the device with most memory."""
        try:
            course = evidence.get(Allocations).devices[0]
            ends = _step_ends(evidence, course)
            return cls(_growing(evidence, course, ends) if len(ends) > 1 else ())
        except NotLooked:
            return cls()


def _step_ends(evidence: Evidence, course: Course) -> tuple[int, ...]:
    """The last event before each step that began inside the history, and the last event of all."""
    begun = sorted({row.unix_us for row in evidence.rows(StepRow) if row.unix_us})
    ends = [bisect_left(course.time_us, start) - 1 for start in begun] if course.time_us else []
    last = len(course.reserved) - 1
    return tuple(sorted({end for end in ends if 0 <= end < last} | ({last} if ends else set())))


def _growing(evidence: Evidence, course: Course, ends: tuple[int, ...]) -> tuple[GrowingLine, ...]:
    history = told(snapshot_of(evidence), course, origins_of(evidence))
    found = [
        GrowingLine(owner, Trend(tuple(map(float, held))))
        for owner, held in zip(
            history.owners, zip(*held_at(history, ends).held, strict=True), strict=True
        )
        if isinstance(owner, Site) and held[-1] > held[0]
    ]
    return tuple(sorted(found, key=lambda line: -line.held.total))
