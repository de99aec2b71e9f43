"""The longest gap of the drawn step for the report: where it is, whose it was, and the finding that
explains it.
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
    DRIVER: ("SYNC012", "SYNC008", "KERN001"),
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
    from auditor.timeline.gaps import dearest_gap

    found = dearest_gap(line, chosen)
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
