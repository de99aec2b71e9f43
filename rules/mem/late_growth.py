"""Memory that the allocator had to obtain late, for sizes it had not met before, while older blocks
lay free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.snapshot.file import SnapshotData, snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.segments import Origins, origins_of
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.rule import NotLooked

SMALL = 1 << 20
"""Requests up to here come from 2 MiB segments: torch's kSmallSize."""


@dataclass(frozen=True)
class NewSizes:
    """A line that asked for new sizes in the second half of the history, each with a cudaMalloc
    although enough was free.

    ``known`` are the sizes that it had asked for in the first half, ``new`` those that were
    obtained; in bytes, sorted.
    """

    site: Site
    known: tuple[int, ...]
    new: tuple[int, ...]


@dataclass(frozen=True)
class LateGrowth(Table):
    """Growth of one device's memory in the second half of the history, in bytes.

    ``reserved`` and ``allocated`` are by how much their highest values rose there. A program that
    really needs more raises both; one whose sizes vary raises the first.
    """

    parts: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    reserved: int = 0
    allocated: int = 0
    peak_reserved: int = 0
    lines: tuple[NewSizes, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> LateGrowth:
        """From the history of the device with most memory. Raises :class:`NotLooked` without
        one.
        """
        data, course = snapshot_of(evidence), evidence.get(Allocations).devices[0]
        try:
            lines = _lines(data, course, origins_of(evidence))
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise NotLooked(
                f"the snapshot's history has another layout than torch's: {type(error).__name__}"
            ) from None
        reserved = _rise(course.start_reserved, course.reserved)
        return cls(
            reserved, _rise(course.start_allocated, course.allocated), course.peak_reserved, lines
        )

    @property
    def wasted_bytes(self) -> int:
        """Reserved in the second half without need."""
        return max(0, self.reserved - self.allocated)


def _rise(start: int, column: Sequence[int]) -> int:
    """By how much the second half of a history exceeds all that came before it."""
    middle = len(column) // 2
    first, second = max(column[:middle], default=0), max(column[middle:])
    return max(0, second - max(start, first))


def _lines(data: SnapshotData, course: Course, origins: Origins) -> tuple[NewSizes, ...]:
    trace, middle = data.trace(course.device), len(course.reserved) // 2
    known: dict[Site, set[int]] = defaultdict(set)
    new: dict[Site, list[int]] = defaultdict(list)
    for index, event in enumerate(trace):
        size = int(event["size"])
        if event["action"] != "alloc" or size <= SMALL:
            continue
        site = origins.site(event.get("frames") or ())
        if site is None:
            continue
        if index < middle:
            known[site].add(size)
        elif (
            size not in known[site]
            and trace[index - 1]["action"] == "segment_alloc"
            and _was_free(course, index - 2) >= size
        ):
            new[site].append(size)
    return tuple(
        NewSizes(site, tuple(sorted(known[site])), tuple(sorted(sizes)))
        for site, sizes in new.items()
    )


def _was_free(course: Course, index: int) -> int:
    return course.reserved[index] - course.active[index] if index >= 0 else 0
