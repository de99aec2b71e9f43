"""The longest stretch of one step in which nothing happened: on the device, or without one on the
host.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from auditor.timeline.bars import Window
from auditor.timeline.idle import (
    HOST,
    INPUT,
    LONG_GAP_NS,
    PROFILER,
    UNKNOWN,
    WAIT,
    Idle,
)
from auditor.timeline.intervals import Intervals, union, without
from auditor.timeline.picture import LOADER, outermost, phases
from auditor.timeline.timeline import Timeline

LEAST = 0.05
"""Share of the step below which a gap has no weight."""

NOTHING = 0.95
"""Share from which a gap of the host says only that the trace shows next to nothing of the step."""


@dataclass(frozen=True)
class StepGap:
    """A gap inside a step, in ns, and who could have filled the greater part of it. ``device`` is -1
    for one of the host.

    ``wait`` is the host wait (row of :class:`Waits`) that cost most of it, -1 where none did.
    ``doing`` is what the host was in, empty where the trace does not show it.
    """

    start: int
    end: int
    cause: str
    device: int = -1
    wait: int = -1
    doing: str = ""


def costliest_gap(line: Timeline, chosen: Window) -> StepGap | None:
    """The longest gap of the device with most work, or of the host where no device worked; None
    where it has no weight, or nobody could have filled it.
    """
    found = line.idle
    gap = _of_device(line, found, chosen) if found is not None else _of_host(line, chosen)
    if line.device_missing or gap is None:
        return None
    least = max(LONG_GAP_NS, LEAST * (chosen.end - chosen.start))
    return gap if gap.end - gap.start >= least else None


def _of_device(line: Timeline, found: Idle, chosen: Window) -> StepGap | None:
    low, high = np.maximum(found.start, chosen.start), np.minimum(found.end, chosen.end)
    causes = list(found.parts)
    most = np.stack(list(found.parts.values())).argmax(axis=0)  # who has the greater part of each
    explained = ~np.isin(most, [causes.index(PROFILER), causes.index(UNKNOWN)])
    length = np.where(explained, high - low, 0)
    if not len(length) or length.max() <= 0:
        return None
    row = int(length.argmax())
    start, end, why = int(low[row]), int(high[row]), causes[most[row]]
    wait = _wait_of(line, found, row) if why == WAIT else -1
    call = int(found.call[row])
    thread = int(line.trace.calls.thread[call]) if call >= 0 else line.main_thread
    doing = line.host_in(start, min(end, start + int(found.dry[row])), thread)
    return StepGap(start, end, why, line.devices[0].device, wait, doing if why == HOST else "")


def _wait_of(line: Timeline, found: Idle, row: int) -> int:
    """The wait that ended in a gap and cost most of it."""
    ended = (line.waits.end >= found.start[row]) & (line.waits.end <= found.end[row])
    costs = np.where(ended, found.of_waits, 0)
    return int(costs.argmax()) if len(costs) and costs.max() > 0 else -1


def _of_host(line: Timeline, chosen: Window) -> StepGap | None:
    """No thread was in an operator or a call: Python, or the loader's next batch."""
    spans, calls, rows = line.trace.operators, line.trace.calls, outermost(line)
    loads = phases(line)[rows] == LOADER
    work = rows[~loads]
    busy = union(np.append(spans.start[work], calls.start), np.append(spans.end[work], calls.end))
    step = Intervals(np.array([chosen.start]), np.array([chosen.end]))
    gaps = without(step, busy)
    if not len(busy.start) or not len(gaps.start):
        return None
    row = int((gaps.end - gaps.start).argmax())
    start, end = int(gaps.start[row]), int(gaps.end[row])
    if end - start >= NOTHING * step.length:
        return None
    loading = union(spans.start[rows[loads]], spans.end[rows[loads]])
    loaded = int(loading.covered(np.array([start]), np.array([end]))[0])
    return StepGap(start, end, INPUT if 2 * loaded > end - start else HOST)
