"""Prices of a trace's findings by its replay, in the place of those that look at each alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from auditor import amounts
from auditor.errors import fault
from auditor.evidence.table import Evidence
from auditor.evidence.trace.replays import Replayed
from auditor.evidence.trace.replays import replayed as replay
from auditor.model import Finding
from auditor.model.charts import Overdue, within
from auditor.model.what_if import OVERLAPS, PricedFix, WhatIf

SECONDS = 60.0
"""Time after which replays for one report are given up: four times what
:data:`auditor.evidence.trace.replays.MOST_EVENTS` takes on one core."""


@dataclass(frozen=True)
class Repriced:
    """The findings with their prices by a replay of the trace, and what they buy together."""

    findings: tuple[Finding, ...]
    what_if: WhatIf | None = None
    weights: dict[int, float] = field(default_factory=dict)
    """By place in ``findings`` the us per step by which a finding is weighed, where that is more
    than its price: its part of what all of them buy together. Of several waits in a row each one
    alone buys nothing, since the next one takes its time.
    """

    def weighed(self, weigh: Callable[[Finding], Finding]) -> tuple[Finding, ...]:
        """The findings as ``weigh`` says, which is shown their weights in the place of prices."""
        return tuple(
            replace(
                weigh(replace(finding, lost_us_per_step=self.weights[row])),
                lost_us_per_step=finding.lost_us_per_step,
            )
            if row in self.weights
            else weigh(finding)
            for row, finding in enumerate(self.findings)
        )


def repriced(evidence: Evidence, findings: tuple[Finding, ...], faults: list[str]) -> Repriced:
    """The findings priced by a replay of the trace. It never costs the report: where it fails, what
    happened is added to ``faults``.
    """
    try:
        with within(SECONDS):
            return _repriced(evidence, findings)
    except Overdue:
        return Repriced(findings, WhatIf(reason=f"it would take longer than {SECONDS:.0f} s"))
    except Exception as error:
        faults.append(f"the trace cannot be replayed: {fault(error)}")
        return Repriced(findings)


def _repriced(evidence: Evidence, findings: tuple[Finding, ...]) -> Repriced:
    """Unchanged where none says what a replay should leave out, or the replay is not trusted: then
    the reason takes its place. A consequence of another finding is priced, and in no table.
    """
    asked = [row for row, each in enumerate(findings) if each.changes and each.basis == "estimated"]
    if not asked:
        return Repriced(findings)
    places = [
        (row, number)
        for row in asked
        for number, place in enumerate(findings[row].places)
        if place.changes
    ]
    there = {each.code for each in findings if not each.follows}
    sets = [findings[row].changes for row in asked]
    sets += [findings[row].places[number].changes for row, number in places]
    counted = [findings[row].follows not in there for row in asked] + [False] * len(places)
    said = replay(evidence, sets, counted)
    if said is None:
        return Repriced(findings)
    if said.reason:
        return Repriced(findings, WhatIf(said.recorded_us, said.replayed_us, reason=said.reason))
    parts = dict(zip(places, said.alone_us[len(asked) :], strict=True))
    priced = list(findings)
    weights = {}
    for number, row in enumerate(asked):
        alone, part = said.alone_us[number], said.share_us[number]
        priced[row] = _priced(findings[row], alone, part, parts, row)
        if part > alone:
            weights[row] = part
    what_if = _what_if(said, [findings[row] for row in asked])
    return Repriced(tuple(priced), what_if, weights)


def _priced(
    finding: Finding, alone: float, part: float, parts: dict[tuple[int, int], float], row: int
) -> Finding:
    together = (
        (("its part if all in the table are fixed", f"{amounts.duration(part)} per step"),)
        if part - alone > OVERLAPS * part
        else ()
    )
    places = tuple(
        replace(place, lost_us_per_step=parts.get((row, number), place.lost_us_per_step))
        for number, place in enumerate(finding.places)
    )
    return replace(
        finding, lost_us_per_step=alone, places=places, facts=(*finding.facts, *together)
    )


def _what_if(said: Replayed, asked: list[Finding]) -> WhatIf:
    fixes = tuple(
        PricedFix(
            asked[row].code,
            asked[row].key,
            asked[row].message,
            str(asked[row].site) if asked[row].site is not None else "",
            said.alone_us[row],
            after,
        )
        for row, after in zip(said.order, said.after_us, strict=True)
    )
    return WhatIf(
        said.recorded_us,
        said.replayed_us,
        sum(fix.after_us for fix in fixes),
        sum(fix.alone_us for fix in fixes),
        fixes,
    )
