"""What the program gave to ``torch.compile``, and what became of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from auditor.evidence.recorded.compiles import UNDISTURBED, Compiles
from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.model.sections import Compilation, CompiledPart, Gain
from auditor.recordings.schema.run import RegionRow, RegionRunRow, StepRow
from auditor.rule import NotLooked


@dataclass(frozen=True)
class Region:
    """A call of ``torch.compile``, or those of one line inside the steps.

    ``steps`` are those in which what it gave ran, of ``watched`` that passed since; ``made_on`` is
    the number of steps that called it themselves, ``us`` the time of these calls on average.
    ``torchs``: it is a module whose ``forward`` is torch's own. ``called``: it ran at least once, in a step or before the first. ``trained``: it is a module
    whose parameters were written to meanwhile. ``dropped``: nobody holds what it gave.
    """

    site: Site
    what: str
    options: str = ""
    method: bool = False
    torchs: bool = False
    steps: int = 0
    watched: int = 0
    called: bool = False
    trained: bool = False
    dropped: bool = False
    made_on: int = 0
    us: float = 0.0


@dataclass(frozen=True)
class CompiledRegions(Table):
    """In the order in which they were made; those that steps make last, one for each line."""

    parts: ClassVar[tuple[str, ...]] = ("regions", "region_runs", "steps")

    regions: tuple[Region, ...] = ()
    """Made before a step, or between two."""
    in_steps: tuple[Region, ...] = ()
    """Made inside a step, in a pass that nothing of ours disturbs."""

    @classmethod
    def build(cls, evidence: Evidence) -> CompiledRegions:
        """From the rows of all passes."""
        rows = rows_of(evidence, RegionRow)
        if not rows:
            raise NotLooked("the program compiles nothing (torch.compile)")
        runs: dict[int, list[RegionRunRow]] = {}
        for run in rows_of(evidence, RegionRunRow):
            runs.setdefault(run.number, []).append(run)
        taken = Counter(row.pass_name for row in rows_of(evidence, StepRow))
        before = tuple(
            _before(evidence, row, runs[row.number], taken)
            for row in rows
            if not row.in_step and row.at is not None and row.number in runs
        )
        inside: dict[int, list[RegionRow]] = {}
        for made in rows:
            if made.in_step and made.at is not None and made.pass_name in UNDISTURBED:
                inside.setdefault(made.at, []).append(made)
        return cls(before, tuple(_inside(evidence, at, each) for at, each in inside.items()))

    @property
    def ran(self) -> bool:
        """True if anything that was compiled before the steps ran in one of them."""
        return any(each.steps for each in self.regions)


def _before(
    evidence: Evidence, row: RegionRow, runs: list[RegionRunRow], taken: Counter[str]
) -> Region:
    dropped = any(each.dropped for each in runs)
    passes = set(taken) if dropped else {each.pass_name for each in runs}
    return Region(
        site=evidence.recording.site(row.at),  # type: ignore[arg-type]
        what=row.what,
        options=row.options,
        method=row.method,
        torchs=row.torchs,
        steps=sum(each.steps for each in runs),
        watched=sum(taken[name] for name in passes),
        called=any(each.called for each in runs),
        trained=any(each.trained for each in runs),
        dropped=dropped,
    )


def _inside(evidence: Evidence, at: int, rows: list[RegionRow]) -> Region:
    return Region(
        site=evidence.recording.site(at),
        what=rows[-1].what,
        options=rows[-1].options,
        method=rows[-1].method,
        made_on=len({(row.pass_name, row.step) for row in rows}),
        us=sum(row.us for row in rows) / len(rows),
    )


# -- compilation -----------------------------------------------------------------------------------
# What ``torch.compile`` did, for the report.


PARTS = 50
"""Functions and modules that a report lists."""


def compilation(evidence: Evidence) -> Compilation | None:
    """None where the program gives nothing to ``torch.compile``, or nothing is known of it."""
    if not all(map(evidence.has, {*Compiles.parts, *CompiledRegions.parts})):
        return None
    try:
        compiles, regions = evidence.get(Compiles), evidence.get(CompiledRegions)
    except NotLooked:
        return None
    steps = evidence.get(Steps)
    return Compilation(
        compiled=compiles.compiled,
        us=compiles.us,
        again=sum(each.n for each in compiles.recompiled),
        breaks=len(compiles.breaks),
        during=sum(1 for step in steps.quiet if step.compiles),
        parts=tuple(_part(each) for each in (*regions.regions, *regions.in_steps)[:PARTS]),
        gain=_gain(steps),
    )


def _part(region: Region) -> CompiledPart:
    steps = region.steps or region.made_on
    watched = max(steps, region.watched)
    return CompiledPart(region.site, region.what, region.options, steps, watched)


def _gain(steps: Steps) -> Gain | None:
    gained = steps.gained_by_compile()
    if gained is None:
        return None
    return Gain(gained.value, gained.low, gained.high, median(own_times(steps.eager_held)))
