"""Modules that a Python loop gives one tensor piece by piece."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.loop_times import LoopTimes
from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import loop_around, trains
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import ModuleLoopRow


@dataclass(frozen=True)
class ModuleLoop:
    """``site``, in the loop at ``head``, calls a ``module`` at least ``turns`` times in a step, with
    pieces of ``elements`` numbers; ``share`` of the time of the middle watched step. ``same``: as
    often in each of them. ``us`` of a step in it, None where it was not timed.
    """

    site: Site
    head: Site
    module: str
    turns: int
    elements: int
    share: float
    recurrent: bool
    same: bool
    steps: int
    us: float | None = None


@dataclass(frozen=True)
class ModuleLoops(Table):
    """One for each loop, that of the outermost module; ``steps`` were watched."""

    parts: ClassVar[tuple[str, ...]] = ("turns",)

    steps: int = 0
    loops: tuple[ModuleLoop, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> ModuleLoops:
        """From the precision pass."""
        steps = sum(
            each["steps"]
            for each in evidence.recording.manifest.get("passes", ())
            if each["name"] == "numbers"
        )
        series: defaultdict[tuple[tuple[int, ...], str], list[ModuleLoopRow]] = defaultdict(list)
        for row in rows_of(evidence, ModuleLoopRow):
            series[tuple(row.lines), row.module].append(row)
        best: dict[Site, ModuleLoop] = {}
        for rows in sorted(series.values(), key=lambda rows: len(rows[0].lines)):
            found = _loop(evidence, rows)
            if found is not None and found.head not in best:
                best[found.head] = found
        return cls(steps, tuple(best.values()))

    def worth(self, turns: int, share: float, elements: int) -> Iterator[ModuleLoop]:
        """Those on every step, of so many turns, that take so much of it. A cell's sequence may
        differ in length; other turns must be as many each time, and of small pieces.
        """
        for each in self.loops:
            small = each.recurrent or (each.same and each.elements <= elements)
            often = each.steps == self.steps and each.turns >= turns
            if small and often and each.share >= share:
                yield each


def _loop(evidence: Evidence, rows: list[ModuleLoopRow]) -> ModuleLoop | None:
    source = evidence.get(Source)
    for number in reversed(rows[0].lines):
        site = evidence.recording.site(number)
        head = loop_around(source, site)
        if head is None or trains(source, site.file, head):
            continue
        text = source.texts[site.file].split("\n")[head - 1].strip()
        turns = [row.n for row in rows]
        return ModuleLoop(
            site,
            Site(site.file, head, site.function, text),
            rows[0].module,
            min(turns),
            rows[0].elements,
            statistics.median(row.us / (row.step_us or math.inf) for row in rows),
            rows[0].recurrent,
            len(set(turns)) == 1,
            len(rows),
            evidence.get(LoopTimes).us_of(number),
        )
    return None
