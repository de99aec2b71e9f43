"""What the rules about host waits have in common when they are asked of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from auditor.evidence.trace.host_waits import TraceWaits, WaitPlace
from auditor.model import Finding, Severity
from auditor.model.what_if import Change

LEAST_SHARE = 0.5
"""Share of the trace's steps on which a wait must be seen: traces hold few steps, and one may be a
warm-up.
"""


def waits_in_trace(
    waits: TraceWaits, places: Iterable[WaitPlace], say: Callable[[WaitPlace], str]
) -> Iterator[Finding]:
    """A finding for each place that waits on most steps; a note where it is not usual, or the trace
    marks no steps.
    """
    priced = waits.marked and waits.timed
    for place in places:
        usual = waits.marked and place.pattern.share >= LEAST_SHARE
        often = (
            f"the host waits on {place.pattern}"
            if waits.marked
            else f"{place.n} waits in the trace, which marks no steps"
        )
        yield Finding(
            place.site,
            f"{say(place)}{place.where}: {often}",
            steps=len(place.seen) if waits.marked else 0,
            per_step=place.per_step if waits.marked else 0.0,
            lost_us_per_step=place.lost_us_per_step if priced else None,
            basis="estimated" if priced else "none",
            seen_on="trace",
            severity=None if usual else Severity.NOTE,
            facts=place.facts,
            changes=(Change("waits", place.rows),) if priced else (),
        )
