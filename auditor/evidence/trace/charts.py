"""The charts of a report that come from its trace: one step by lanes with the findings in it, and
what the steps are made of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from auditor.evidence.table import Evidence
from auditor.evidence.trace.dearest_gap import gap_of
from auditor.evidence.trace.facts import timed_timeline
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.model import Finding
from auditor.model.charts import Lanes, Pointer
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.timeline import Timeline
    from auditor.timeline.bars import Window

POINTERS = 60
"""Places that are marked for one finding at most."""

Fact = tuple[str, str]

SPANS = {
    "DATA007": "enumerate(DataLoader)",
    "OPT001": "Optimizer.step",
    "OPT002": "Optimizer.zero_grad",
    "OPT003": "Optimizer.step",
}
"""Rules whose findings are about a phase that the trace names, and how its name begins."""

IDLE = ("KERN001", "KERN002", "KERN003")
"""Rules about gaps in the device's work: any, long ones of the host, those between launches."""

SEEN = 0.01
"""Share of the window from which a gap is marked."""


def trace_charts(evidence: Evidence, findings: Iterable[Finding]) -> tuple[Lanes, ...]:
    """Both charts; empty where there is no trace, or nothing in it."""
    try:
        line = timed_timeline(evidence)
    except NotLooked:
        return ()
    from auditor.timeline.picture import step_parts, step_timeline, window

    drawn, chosen = step_timeline(line), window(line)
    if (
        drawn is not None and chosen is not None and evidence.has("steps")
    ):  # a run of ours, whose steps have numbers
        number = evidence.recording.run_step("trace", line.steps.start.tolist().index(chosen.start))
        drawn = replace(drawn, note=f"Step {number} of the run: {drawn.note}")
    if drawn is not None and chosen is not None:
        told = tuple(findings)
        waits = _waits(evidence, line, told)
        drawn = replace(
            drawn,
            pointers=tuple(_pointers(line, chosen, told, waits)),
            gap=gap_of(line, chosen, drawn.lanes, told, waits),
            origin=chosen.start / 1e3,
        )
    return tuple(chart for chart in (drawn, step_parts(line)) if chart is not None)


def _waits(
    evidence: Evidence, line: Timeline, findings: tuple[Finding, ...]
) -> dict[str, list[int]]:
    """The host waits (rows of the timeline) that each finding is about, by its key."""
    try:
        places = evidence.get(TraceWaits).places
    except NotLooked:
        places = ()
    known: dict[Fact, list[tuple[frozenset[Fact], tuple[int, ...]]]] = defaultdict(list)
    for place in places:
        known[place.facts[0]].append((frozenset(place.facts), place.rows))
    found: dict[str, list[int]] = {}
    for finding in findings:
        said = {*finding.facts, *finding.joined_facts}
        found[finding.key] = sorted(
            row
            for fact in said
            for facts, rows in known.get(fact, ())
            if facts <= said
            for row in rows
        )
    return found


def _pointers(
    line: Timeline,
    chosen: Window,
    findings: tuple[Finding, ...],
    waits: Mapping[str, Sequence[int]],
) -> Iterator[Pointer]:
    shown = ((line.waits.start >= chosen.start) & (line.waits.start < chosen.end)).tolist()
    for finding in findings:
        rows = [row for row in waits.get(finding.key, ()) if shown[row]][:POINTERS]
        spans = (
            [(int(line.waits.start[row]), int(line.waits.end[row])) for row in rows]
            or _named(line, finding, chosen)
            or _idle(line, finding, chosen)
        )
        for start, end in spans[:POINTERS]:
            yield Pointer(
                finding.key, (start - chosen.start) / 1e3, (min(end, chosen.end) - start) / 1e3
            )


def _named(line: Timeline, finding: Finding, chosen: Window) -> list[tuple[int, int]]:
    """Spans of the phase that a finding is about, as far as they begin in the window."""
    from auditor.timeline.naming import mask

    begins = SPANS.get(finding.code)
    if begins is None:
        return []
    spans = line.trace.operators
    inside = (spans.start >= chosen.start) & (spans.start < chosen.end)
    rows = (
        inside & mask(line.trace.names, spans.name, lambda name: name.startswith(begins))
    ).nonzero()[0][:POINTERS]
    return list(zip(spans.start[rows].tolist(), spans.end[rows].tolist(), strict=True))


def _idle(line: Timeline, finding: Finding, chosen: Window) -> list[tuple[int, int]]:
    """Gaps of the device in the window that a finding is about, as far as they can be seen; where
    there are too many, the longest.
    """
    from auditor.timeline.idle import LONG_GAP_NS

    found = line.idle
    if finding.code not in IDLE or found is None:
        return []
    end = found.end if finding.code == "KERN001" else found.start + found.dry
    low, high = found.start.clip(min=chosen.start), end.clip(max=chosen.end)
    long, known = found.dry >= LONG_GAP_NS, found.call >= 0
    own = {"KERN001": low < high, "KERN002": known & long, "KERN003": known & ~long}[finding.code]
    rows = (own & (high - low >= SEEN * (chosen.end - chosen.start))).nonzero()[0]
    longest = rows[(low - high)[rows].argsort(kind="stable")][:POINTERS]
    return sorted(zip(low[longest].tolist(), high[longest].tolist(), strict=True))
