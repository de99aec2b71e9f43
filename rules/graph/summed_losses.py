"""Backward calls over sums of losses whose graphs could have been walked one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import SummedRow


@dataclass(frozen=True)
class SummedLosses:
    """``site`` walks the graphs of ``parts`` losses at once, which hold ``saved_bytes``; the largest
    alone holds ``each_bytes``. The parameters that they reach take ``leaf_bytes``.
    """

    site: Site
    parts: int
    saved_bytes: int
    each_bytes: int
    leaf_bytes: int
    steps: int

    @property
    def lost_bytes(self) -> int:
        """What need not be there at one time."""
        return max(0, self.saved_bytes - self.each_bytes)


@dataclass(frozen=True)
class LossSums(Table):
    """All such lines of the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("summed",)

    sums: tuple[SummedLosses, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> LossSums:
        """From the first steps of the pass: of each line the smallest of its sums."""
        lines: defaultdict[int, list[SummedRow]] = defaultdict(list)
        for row in rows_of(evidence, SummedRow):
            lines[row.at].append(row)
        return cls(tuple(_sum(evidence, rows) for rows in lines.values()))

    def heavy(self, steps: int, least_bytes: int, times: float) -> Iterator[SummedLosses]:
        """Those on so many steps whose largest part holds so much, and what need not be there
        ``times`` what the parameters take.
        """
        for each in self.sums:
            large = each.lost_bytes >= times * each.leaf_bytes
            if large and each.steps >= steps and each.each_bytes >= least_bytes:
                yield each


def _sum(evidence: Evidence, rows: list[SummedRow]) -> SummedLosses:
    least = min(rows, key=lambda row: row.saved_bytes - row.each_bytes)
    steps = len({row.step for row in rows})
    site = evidence.recording.site(least.at)
    return SummedLosses(site, least.n, least.saved_bytes, least.each_bytes, least.leaf_bytes, steps)
