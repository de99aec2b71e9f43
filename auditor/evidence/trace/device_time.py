"""Where the time of a trace's device went: compute, communication, copies and idle time, the queue,
the costliest kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from auditor.evidence.table import Evidence
from auditor.evidence.trace.facts import HOST, timed_timeline
from auditor.evidence.trace.idle import EMPTY_NS
from auditor.model.sections import (
    COMPUTING,
    COPYING,
    EXPOSED,
    IDLE,
    CopyUse,
    DeviceTime,
    KernelUse,
    Part,
    QueueUse,
)
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.timeline import Timeline
    from auditor.timeline.intervals import Intervals
    from auditor.timeline.trace import Ints

KERNELS, COPIES = 5, 6
"""Costliest kernels, and kinds of copies with most time, that are told."""


def device_time(evidence: Evidence) -> DeviceTime | None:
    """Of the recording's trace; None where there is none, or it shows no work of a device."""
    try:
        line = timed_timeline(evidence)
    except NotLooked:
        return None
    return _of(line) if line.idle is not None and line.idle.windows.length else None


def _of(line: Timeline) -> DeviceTime:
    assert line.idle is not None
    use, windows, steps = line.devices[0], line.idle.windows, line.steps.count
    each, total = 1e3 * steps, windows.length
    talk = next((one for one in line.communication if one.device == use.device), None)
    talking = talk.busy.overlap(windows) if talk is not None else 0
    exposed = talk.exposed.overlap(windows) if talk is not None else 0
    computing = talk.computing if talk is not None else _kernels_busy(line)
    idle, compute = line.idle.total, computing.overlap(windows)
    peaks = [one.peak_allocated for one in line.memory if one.device_type != HOST]
    parts = (
        (COMPUTING, compute),
        (EXPOSED, exposed),
        (COPYING, total - idle - compute - exposed),
        (IDLE, idle),
    )
    return DeviceTime(
        device=use.name,
        steps=line.steps.count if line.steps.marked else 0,
        step_us=total / each,
        busy=use.busy.overlap(windows) / total,
        parts=tuple(Part(name, ns / each, ns / total) for name, ns in parts),
        communication_us=talking / each,
        copies=_copies(line, steps),
        queue=_queue(line),
        kernels=_kernels(line, steps),
        loader_us=line.loader.in_steps_ns / each if line.loader is not None else None,
        held_us=float(line.waits.held[(line.waits.step >= 0) & ~line.waits.profiler].sum()) / each,
        peak_bytes=peak if (peak := max(peaks, default=-1)) >= 0 else None,
        rank=line.trace.info.rank,
    )


def _kernels_busy(line: Timeline) -> Intervals:
    from auditor.timeline.intervals import union
    from auditor.timeline.trace import KERNEL

    work, rows = line.trace.work, line.devices[0].rows
    rows = rows[work.kind[rows] == KERNEL]
    return union(work.start[rows], work.end[rows])


def _inside(line: Timeline, rows: Ints) -> Ints:
    assert line.idle is not None
    result: Ints = rows[line.idle.windows.holds(line.trace.work.start[rows])]
    return result


def _copies(line: Timeline, steps: int) -> tuple[CopyUse, ...]:
    from auditor.timeline.intervals import groups
    from auditor.timeline.trace import MEMCPY

    use, work = line.devices[0], line.trace.work
    rows = _inside(line, use.rows[work.kind[use.rows] == MEMCPY])
    found = []
    for code, part in groups(work.name[rows]):
        ns = int((work.end[rows[part]] - work.start[rows[part]]).sum())
        size = work.bytes[rows[part]]
        kind = line.trace.names[code].removeprefix("Memcpy ")
        found.append(
            CopyUse(
                kind,
                len(part) / steps,
                ns / 1e3 / steps,
                float(size.sum()) / steps if (size >= 0).all() else None,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.us, one.kind))[:COPIES])


def _queue(line: Timeline) -> QueueUse | None:
    import numpy as np

    from auditor.timeline.waits import queue_depth

    depth, delay = queue_depth(line), line.launch_delay_ns
    if not len(depth):
        return None
    return QueueUse(int(np.median(depth)), int(depth.max()), float((delay < EMPTY_NS).mean()))


def _kernels(line: Timeline, steps: int) -> tuple[KernelUse, ...]:
    import numpy as np

    from auditor.timeline.device import ns_by_name
    from auditor.timeline.trace import KERNEL

    assert line.idle is not None
    use, work, names = line.devices[0], line.trace.work, line.trace.names
    rows = _inside(line, use.rows[work.kind[use.rows] == KERNEL])
    calls = np.bincount(work.name[rows], minlength=len(names))
    ns = ns_by_name(line.trace, rows)
    costliest = sorted(np.flatnonzero(calls).tolist(), key=lambda code: (-ns[code], names[code]))[
        :KERNELS
    ]
    total = line.idle.windows.length
    return tuple(
        KernelUse(
            names[code],
            int(calls[code]) / steps,
            float(ns[code]) / 1e3 / steps,
            float(ns[code]) / total,
        )
        for code in costliest
    )
