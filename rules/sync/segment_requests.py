"""For which lines the allocator went to the driver, and who gave memory back, by an allocation
history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.snapshot.file import Event, snapshot_of
from auditor.evidence.snapshot.history import GAINS, LOSSES, Allocations
from auditor.evidence.snapshot.segments import origins_of
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.rule import NotLooked


@dataclass(frozen=True)
class SegmentRequests(Table):
    """All devices of the history together; empty where there is none.

    ``lines`` are those whose tensors needed memory from the driver, with the number of times, most
    often first; ``emptied`` is the line whose ``empty_cache`` gave memory back most often.
    """

    parts: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    lines: tuple[tuple[Site, int], ...] = ()
    emptied: Site | None = None

    @classmethod
    def build(cls, evidence: Evidence) -> SegmentRequests:
        """From the recording's snapshot."""
        try:
            courses, data = evidence.get(Allocations).devices, snapshot_of(evidence)
            origins = origins_of(evidence)
            asked, emptied = Counter[Site](), Counter[Site]()
            for event in (event for course in courses for event in data.trace(course.device)):
                frames = event.get("frames") or ()
                if event["action"] in GAINS:
                    counter = asked
                elif event["action"] in LOSSES and _by_the_program(frames):
                    counter = emptied
                else:
                    continue
                site = origins.site(frames)
                if site is not None:
                    counter[site] += 1
        except (NotLooked, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            return cls()
        return cls(tuple(asked.most_common()), next(iter(dict(emptied.most_common())), None))


def _by_the_program(frames: Sequence[Event]) -> bool:
    return any("empty_cache" in frame["name"] for frame in frames)
