"""How often compiled functions were entered in the traced steps, and what finding them cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import timed_timeline
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.timeline import Timeline
    from auditor.timeline.trace import Operators

LOOKUP = "TorchDynamo Cache Lookup"
"""Span in which the guards of what was compiled of a frame are checked, just before it runs."""

_REGION = re.compile(r"Torch-Compiled Region: !?(?:\d+/)?(?P<frame>\d+)/\d+")


@dataclass(frozen=True)
class Entered:
    """Of one frame in each step: how often it was entered, and the host time of its lookups, us."""

    n: float = 0.0
    lookup_us: float = 0.0


@dataclass(frozen=True)
class GraphEntries(Table):
    """``frames`` by the compiler's number; empty where there is no trace, or it has no times."""

    parts: ClassVar[tuple[str, ...]] = ("compiles",)

    frames: Mapping[str, Entered] = field(default_factory=dict)

    @classmethod
    def build(cls, evidence: Evidence) -> GraphEntries:
        """From the trace."""
        try:
            return cls(_entered(timed_timeline(evidence)))
        except NotLooked:
            return cls()

    def of(self, frames: Iterable[str]) -> Entered:
        """All of these together."""
        found = [self.frames[each] for each in frames if each in self.frames]
        return Entered(sum(each.n for each in found), sum(each.lookup_us for each in found))


def _entered(line: Timeline) -> dict[str, Entered]:
    import numpy as np

    operators, names = line.trace.operators, line.trace.names
    frames = {
        code: match["frame"]
        for code, name in enumerate(names)
        if (match := _REGION.match(name)) is not None
    }
    if not frames:
        return {}
    told = np.isin(operators.name, [*frames, *_codes_of(names, LOOKUP)])
    rows = np.flatnonzero(told)
    rows = rows[np.lexsort((operators.start[rows], operators.thread[rows]))]
    in_step = line.steps.of(operators.start[rows]) >= 0
    found: dict[str, Entered] = {}
    for place, row in enumerate(rows):
        frame = frames.get(int(operators.name[row]))
        if frame is not None and in_step[place]:
            us = _looked_up(operators, frames, int(rows[place - 1]), int(row)) if place else 0.0
            known = found.get(frame, Entered())
            found[frame] = Entered(known.n + 1, known.lookup_us + us)
    count = line.steps.count
    return {frame: Entered(each.n / count, each.lookup_us / count) for frame, each in found.items()}


def _codes_of(names: Sequence[str], wanted: str) -> list[int]:
    return [code for code, name in enumerate(names) if name == wanted]


def _looked_up(operators: Operators, frames: Mapping[int, str], before: int, row: int) -> float:
    """Time of the lookup that led to a region, which is the span just before it on its thread."""
    if int(operators.name[before]) in frames or operators.thread[before] != operators.thread[row]:
        return 0.0
    return float(operators.end[before] - operators.start[before]) / 1e3
