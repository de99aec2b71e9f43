"""All ranks of a job side by side: late ranks, the waits of the others, and the cause."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from auditor.evidence.table import Evidence, Table
from auditor.model import Rank

if TYPE_CHECKING:
    from auditor.timeline import Fleet

RANKS = "ranks"
"""Attribute of a recording with the facts of all ranks (``standalone.RankedTraces``)."""


RECORDED = "rows_of_ranks"
"""Attribute of a run's recordings with rows of their own times (``RankedRecording``)."""


@dataclass(frozen=True)
class Ranks(Table):
    """The ranks of a job; no rows where one trace stands alone. Times are in us for each step."""

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    rows: tuple[Rank, ...] = ()
    late: int | None = None
    """The rank that the others wait for; None if none can be named."""
    last: int = 0
    """How many of the shared collectives it came last to."""
    shared: int = 0
    """Collectives that every rank has."""
    waited_us: float = 0.0
    """What the median rank waits for others in collectives, less what the late one does."""
    clocks_us: float = 0.0
    """How far apart the ranks' clocks still are after they were set by the ends of collectives."""

    @classmethod
    def build(cls, evidence: Evidence) -> Ranks:
        """From the ranks of the recording; empty if it is one trace, or one process."""
        found = getattr(evidence.recording, RANKS, None)
        table = _table(found) if found is not None else cls()
        recorded = getattr(evidence.recording, RECORDED, None)
        if recorded is None:
            return table
        rows = recorded({row.file: row for row in table.rows})
        return replace(table, rows=rows)

    @property
    def step_us(self) -> float:
        """Median of the ranks' median steps."""
        return statistics.median(row.step_us for row in self.rows) if self.rows else 0.0

    @property
    def waited_share(self) -> float:
        """Part of a step that the median rank waits for the late one."""
        return self.waited_us / self.step_us if self.step_us else 0.0

    @property
    def steps(self) -> int:
        """Steps of the rank with the fewest."""
        return min((row.steps for row in self.rows), default=0)


def _table(found: Fleet) -> Ranks:
    rows = tuple(one.row for one in found.ranks)
    late = found.late
    if late is None:
        return Ranks(rows)
    steps = max(1, min(row.steps for row in rows))
    return Ranks(
        rows,
        late=rows[late.place].rank,
        last=late.last,
        shared=late.shared,
        waited_us=max(0.0, late.waited_ns / 1e3 / steps),
        clocks_us=late.clocks_ns / 1e3,
    )
