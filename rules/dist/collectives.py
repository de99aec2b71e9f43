"""Collectives that the program calls itself, by line."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median
from typing import ClassVar

from auditor.evidence.recorded.data_parallel import ONE_PROCESS
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from .rows import CollectiveRow
from auditor.rule import NotLooked


@dataclass(frozen=True)
class Collective:
    """Calls of ``what`` on one line: in which steps, how many in a usual one of these, bytes of each
    call, and the host's time inside them in us per step.
    """

    site: Site
    what: str
    pattern: StepPattern
    per_step: float
    nbytes: float
    us: float | None
    """None on a null device, where no time counts."""
    ranks: int


@dataclass(frozen=True)
class Collectives(Table):
    """Those of the instrumented pass, in the order of their lines."""

    parts: ClassVar[tuple[str, ...]] = ("collectives", "steps")

    each: tuple[Collective, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> Collectives:
        """From the rows of each line and function."""
        lines: dict[tuple[int, str], list[CollectiveRow]] = {}
        for row in rows_of(evidence, CollectiveRow):
            lines.setdefault((row.at, row.what), []).append(row)
        if not lines and int(evidence.recording.manifest.get("world_size") or 1) < 2:
            raise NotLooked(ONE_PROCESS)
        steps, null = len(evidence.get(Steps).loud), evidence.recording.device.null
        return cls(
            tuple(
                Collective(
                    evidence.recording.site(at),
                    what,
                    step_pattern({row.step for row in rows}, steps),
                    median(row.n for row in rows),
                    sum(row.bytes for row in rows) / max(1, sum(row.n for row in rows)),
                    None if null else mean(row.us for row in rows),
                    max(row.ranks for row in rows),
                )
                for (at, what), rows in sorted(lines.items())
            )
        )
