"""The charts of a report that come from its trace: one step by lanes with the findings in it, and
what the steps are made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from auditor.evidence.trace.idle import DEVICE, DRIVER, HOST, INPUT, LAUNCHING, WAIT
from auditor.model import Finding
from auditor.model.charts import Gap

if TYPE_CHECKING:
    from auditor.timeline import Timeline
    from auditor.timeline.bars import Window
    from auditor.timeline.gaps import StepGap

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from auditor.evidence.table import Evidence
from auditor.evidence.trace.facts import timed_timeline
from auditor.evidence.trace.host_waits import TraceWaits
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
    # a run of ours, whose steps have numbers
    if drawn is not None and chosen is not None and evidence.has("steps"):
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


# -- costliest gap -----------------------------------------------------------------------------------
# The longest gap of the drawn step for the report: where it is, whose it was, and the finding that
# explains it.


WORDS = {
    INPUT: "the loop waited for its batch",
    WAIT: "the host had waited for the device, and launched nothing",
    DRIVER: "the host was in calls that take or return device memory",
    LAUNCHING: "the host launched more slowly than the device worked",
    HOST: "the host did something else",
    DEVICE: "work was queued and did not start",
}
ON_HOST = {
    INPUT: "the loop waited for its batch",
    HOST: "no operator ran: Python, or what the trace does not show",
}
EXPLAIN = {
    INPUT: ("DATA007",),
    DRIVER: ("SYNC012", "KERN001"),
    LAUNCHING: ("KERN003", "KERN001"),
    HOST: ("KERN002", "TIME003", "KERN001"),
    DEVICE: ("DIST003", "KERN001"),
    WAIT: ("KERN001",),
}
"""Codes of findings about such a gap, the one that says most of it first."""


def gap_of(
    line: Timeline,
    chosen: Window,
    lanes: tuple[str, ...],
    findings: tuple[Finding, ...],
    waits: Mapping[str, Iterable[int]],
) -> Gap | None:
    """The gap as the chart has it; ``waits`` are the host waits (rows) of findings by their key.
    None where no gap has weight.
    """
    from auditor.timeline.gaps import costliest_gap

    found = costliest_gap(line, chosen)
    if found is None:
        return None
    begins = "main thread" if found.device < 0 else f"gpu {found.device} "
    shown = tuple(number for number, name in enumerate(lanes) if name.startswith(begins))
    if not shown:
        return None
    return Gap(
        shown,
        (found.start - chosen.start) / 1e3,
        (found.end - found.start) / 1e3,
        (found.end - found.start) / (chosen.end - chosen.start),
        "host" if found.device < 0 else "device",
        _words(found),
        _explained(found, findings, waits),
    )


def _words(found: StepGap) -> str:
    words = (ON_HOST if found.device < 0 else WORDS)[found.cause]
    return f"{words}, in `{found.doing}`" if found.doing else words


def _explained(
    found: StepGap, findings: tuple[Finding, ...], waits: Mapping[str, Iterable[int]]
) -> str:
    """The key of the finding, empty where none explains it."""
    for finding in findings if found.wait >= 0 else ():
        if found.wait in waits.get(finding.key, ()):
            return finding.key
    for code in EXPLAIN[found.cause]:
        for finding in findings:
            if code in finding.codes:
                return finding.key
    return ""
