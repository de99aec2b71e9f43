"""Distances of all pairs that are made through one tensor of all differences."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import DifferencesRow


@dataclass(frozen=True)
class Differences:
    """``site`` makes differences of rows of ``size`` numbers, of ``nbytes`` the largest, of which
    nothing but their ``kind`` is summed; ``graph``: they are kept for the backward.
    """

    site: Site
    kind: str
    size: int
    nbytes: int
    graph: bool
    per_step: float
    steps: int


@dataclass(frozen=True)
class PairwiseDifferences(Table):
    """One for each line and kind, the largest first."""

    parts: ClassVar[tuple[str, ...]] = ("differences",)

    lines: tuple[Differences, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> PairwiseDifferences:
        """From the precision pass."""
        alike: defaultdict[tuple[Site, str], list[DifferencesRow]] = defaultdict(list)
        for row in rows_of(evidence, DifferencesRow):
            alike[evidence.recording.site(row.at), row.kind].append(row)
        found = (_line(site, kind, rows) for (site, kind), rows in alike.items())
        return cls(tuple(sorted(found, key=lambda each: -each.nbytes)))


def _line(site: Site, kind: str, rows: list[DifferencesRow]) -> Differences:
    largest = max(rows, key=lambda row: row.bytes)
    steps = len({row.step for row in rows})
    kept = any(row.graph for row in rows)
    return Differences(site, kind, largest.size, largest.bytes, kept, len(rows) / steps, steps)
