"""Cached memory that goes back to the device and is obtained again: what ``empty_cache`` in a loop
looks like from below.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from auditor.evidence.snapshot.file import SnapshotData, snapshot_of
from auditor.evidence.snapshot.history import LOSSES, Allocations, Course
from auditor.evidence.snapshot.segments import Origins, origins_of
from auditor.evidence.snapshot.what_if import without_flushes
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.rule import NotLooked


@dataclass(frozen=True)
class CacheChurn(Table):
    """The second half of a device's history: ``flushes`` of the cache, and the bytes that were
    obtained again after one.

    ``site`` is the line that called ``empty_cache`` most often; None where the history does not
    tell who did.
    """

    parts: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    flushes: int = 0
    retries: int = 0
    again_bytes: int = 0
    peak_reserved: int = 0
    site: Site | None = None
    facts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> CacheChurn:
        """From the history of the device whose memory came back most. Raises :class:`NotLooked`
        without one.
        """
        course = max(evidence.get(Allocations).devices, key=lambda each: each.late_churn)
        data = snapshot_of(evidence)
        try:
            flushes, site = _flushes(data, course, origins_of(evidence))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise NotLooked(
                f"the snapshot's history has another layout than torch's: {type(error).__name__}"
            ) from None
        kept = without_flushes(evidence, course) if flushes and not course.retries else ()
        return cls(
            flushes,
            course.retries,
            course.late_churn,
            course.peak_reserved,
            site,
            (*course.facts, *kept),
        )


def _flushes(data: SnapshotData, course: Course, origins: Origins) -> tuple[int, Site | None]:
    trace = data.trace(course.device)
    late, calls = 0, Counter[Site]()
    for lost, group in groupby(enumerate(trace), key=lambda item: item[1]["action"] in LOSSES):
        index, event = next(group)
        if not lost or index < len(trace) // 2:
            continue
        late += 1
        frames = event.get("frames") or ()
        site = (
            origins.site(frames)
            if any("empty_cache" in frame["name"] for frame in frames)
            else None
        )
        if site is not None:
            calls[site] += 1
    return late, max(calls, key=calls.__getitem__, default=None)
