"""Prices of a trace's findings by its replay, in the place of those that look at each alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from auditor import amounts
from auditor.errors import fault
from auditor.evidence.table import Evidence
from auditor.evidence.trace.facts import timed_timeline
from auditor.model import Finding
from auditor.model.charts import Overdue, within
from auditor.model.what_if import OVERLAPS, Change, PricedFix, WhatIf
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.timeline.what_if import Replays


SECONDS = 60.0
"""Time after which replays for one report are given up: four times what
:data:`auditor.judging.replayed.MOST_EVENTS` takes on one core."""


@dataclass(frozen=True)
class Repriced:
    """The findings with their prices by a replay of the trace, and their joint saving."""

    findings: tuple[Finding, ...]
    what_if: WhatIf | None = None
    weights: dict[int, float] = field(default_factory=dict)
    """By place in ``findings`` the us per step by which a finding is weighed, if that is more than
    its price: its part of the joint saving. Of several waits in a row, each alone saves nothing,
    since the next wait takes its time.
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
    """The findings priced by a replay of the trace; what goes wrong is added to ``faults``."""
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


Changes = tuple[Change, ...]

MOST_EVENTS = 3_000_000
"""Events that the replays for one report go through at most: about 15 s on one core. One replay of
a trace with 100,000 events goes through about 10,000."""

NO_LAUNCHES = "the trace does not show what launched the device's work"

MOST_STREAMS = 64
"""Streams of one device in a trace that is replayed: recordings have 1 to 20, and each work that
may have waited for others looks at all of them."""


@dataclass(frozen=True)
class Replayed:
    """Savings of several sets of changes, in us per step."""

    recorded_us: float
    replayed_us: float
    alone_us: tuple[float, ...] = ()
    order: tuple[int, ...] = ()
    """The sets that are counted, largest single saving first."""
    after_us: tuple[float, ...] = ()
    """Saving of each set after those before it in :attr:`order`; in that order."""
    share_us: tuple[float, ...] = ()
    """Each set's part of the joint saving of the counted sets; 0 for the others. It is in
    proportion to the set's saving alone and as the last one.
    """
    reason: str = ""
    """Why nothing is said; empty if something is."""


def replay(
    evidence: Evidence, asked: Sequence[Changes], counted: Sequence[bool]
) -> Replayed | None:
    """The saving of each set of changes, and of the ``counted`` ones; None without a device."""
    try:
        line = timed_timeline(evidence)
    except NotLooked:
        return None
    streams = max((len(use.stream_busy_ns) for use in line.devices), default=0)
    if streams > MOST_STREAMS:
        return Replayed(0.0, 0.0, reason=f"work on {streams:,} streams of one device is too much")
    if len(line.trace.calls.start) > MOST_EVENTS:
        return Replayed(0.0, 0.0, reason=f"{len(line.trace.calls.start):,} calls are too many")
    replays = line.replays
    if replays is None:
        return Replayed(0.0, 0.0, reason=NO_LAUNCHES) if line.devices else None
    us = 1e3 * replays.plan.steps
    base = replays.recorded_ns / us, replays.unchanged.whole_ns / us
    if replays.reason:
        return Replayed(*base, reason=replays.reason)
    if (2 * len(asked) + 1) * replays.plan.count > MOST_EVENTS:
        return Replayed(
            *base,
            reason=f"{replays.plan.count:,} calls and {len(asked)} findings are too many to replay",
        )
    alone = [replays.gain(each) for each in asked]
    rows = [row for row, each in enumerate(counted) if each]
    order = sorted(rows, key=lambda row: -alone[row])
    joint = [
        replays.gain(change for row in order[: place + 1] for change in asked[row])
        for place in range(len(order))
    ]
    after = [max(0, now - before) for before, now in pairwise(accumulate((0, *joint), max))]
    return Replayed(
        *base,
        tuple(ns / us for ns in alone),
        tuple(order),
        tuple(ns / us for ns in after),
        tuple(ns / us for ns in _shares(replays, asked, alone, rows)),
    )


def _shares(
    replays: Replays, asked: Sequence[Changes], alone: Sequence[int], rows: Sequence[int]
) -> list[float]:
    joint = replays.gain(change for row in rows for change in asked[row])
    weights = [0] * len(asked)
    for row in rows:
        others = (change for other in rows if other != row for change in asked[other])
        weights[row] = alone[row] + max(0, joint - replays.gain(others))
    whole = sum(weights)
    return [joint * weight / whole if whole else 0.0 for weight in weights]
