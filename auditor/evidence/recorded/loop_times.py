"""How long Python loops take, from the pass that follows their lines and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar

from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.table import Evidence, Table
from auditor.recordings.schema import LoopTimeRow


@dataclass(frozen=True)
class LoopTimes(Table):
    """Us of a step in loops, by the number of a line's site: the median of the steps of that pass,
    and no more than the median step of the timing pass.
    """

    parts: ClassVar[tuple[str, ...]] = ()

    us: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def build(cls, evidence: Evidence) -> LoopTimes:
        """From the pass ``loops``, where there was one beside a timing pass."""
        seen: defaultdict[int, list[float]] = defaultdict(list)
        for row in evidence.rows(LoopTimeRow) if evidence.has(LoopTimeRow.part) else ():
            seen[row.at].append(max(0.0, row.us))
        quiet = own_times(evidence.get(Steps).quiet) if seen and evidence.has("steps") else ()
        step_us = median(quiet) if quiet else 0.0
        return cls({at: min(step_us, median(each)) for at, each in seen.items()})

    def us_of(self, *numbers: int | None) -> float | None:
        """Of the first of these lines that is known; None where none is."""
        known = (self.us.get(each, 0.0) for each in numbers if each is not None)
        return next(filter(None, known), None)
