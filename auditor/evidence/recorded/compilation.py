"""What ``torch.compile`` did, for the report."""

from __future__ import annotations

from statistics import median

from auditor.evidence.recorded.compiled_regions import CompiledRegions, Region
from auditor.evidence.recorded.compiles import Compiles
from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.table import Evidence
from auditor.model.compilation import Compilation, CompiledPart, Gain
from auditor.rule import NotLooked

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
