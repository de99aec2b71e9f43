"""Peaks of device memory in a rehearsal, of the step as it is and with one thing changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.rule import NotLooked

from .rows import LeanerRow

SAME = 0.01
"""By how much the peaks of unchanged steps may differ as a share, before a changed one says
nothing.
"""


@dataclass(frozen=True)
class Change:
    """One change and the peak with it, in bytes. ``tensors`` counts those that it concerned;
    ``site`` is the optimizer's step.
    """

    what: str
    peak: int
    tensors: int
    site: Site | None


@dataclass(frozen=True)
class PeakExperiments(Table):
    """The peak of the step as it is, in bytes, and the changes that were tried."""

    parts: ClassVar[tuple[str, ...]] = ("leaner",)
    absent: ClassVar[Mapping[str, str]] = {
        "leaner": "steps with one thing changed are only taken in a "
        "rehearsal, and this recording has none"
    }
    of_rehearsals: ClassVar[bool] = True

    peak: int
    changes: tuple[Change, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> PeakExperiments:
        """From the pass ``leaner``. Raises :class:`NotLooked` where steps differ in themselves, or
        none completed.
        """
        rows = rows_of(evidence, LeanerRow)
        same = [row.peak_allocated for row in rows if not row.what]
        if len(same) < 2:
            raise NotLooked("too few steps were rehearsed with one thing changed")
        if max(same) - min(same) > SAME * max(same):
            raise NotLooked(
                "the steps' peaks of memory differ in themselves, so a changed step cannot be "
                "compared with them"
            )
        changed = (row for row in rows if row.what and row.changed)
        sites = (None if row.at is None else evidence.recording.site(row.at) for row in rows)
        site = next((found for found in sites if found is not None), None)
        return cls(
            min(same),
            tuple(Change(row.what, row.peak_allocated, row.changed, site) for row in changed),
        )

    def savings(self, *, share: float, least_bytes: int) -> Iterator[tuple[Change, int]]:
        """Changes that lower the peak by so much, each with the bytes."""
        for change in self.changes:
            saved = self.peak - change.peak
            if saved >= max(share * self.peak, least_bytes):
                yield change, saved
