"""Idle time of the device in a trace: amount, causes, and the host's work in long gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import HOST_MEMORY, need_a_device, timed_timeline
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
    from auditor.timeline.waits import Idle


INPUT, WAIT, DRIVER, PROFILER = "input", "wait", "driver", "profiler"
LAUNCHING, HOST, DEVICE, UNKNOWN = "launching", "host", "device", "unknown"
"""Words of :mod:`auditor.timeline.waits` for the causes of idle time."""

LONGEST = 5
"""Gaps that are listed one by one."""

EMPTY_NS = 20_000
"""A kernel that starts sooner after its launch found an empty queue (a launch takes 5 us)."""


@dataclass(frozen=True)
class Gap:
    """A stretch in which the device had nothing to do. ``at_us`` counts from the begin of the first
    window, ``us`` is the part of one cause: the host's, or that of work in the queue.

    ``doing`` is the operator, annotation, call or Python function that the host was in for the
    greater part of it; empty if the trace shows none. ``api`` is the call that launched the work
    which ended the gap, ``launched_us`` how long before that work it returned (0 if it had not).
    """

    at_us: float
    us: float
    doing: str = ""
    api: str = ""
    launched_us: float = 0.0


@dataclass(frozen=True)
class DeviceIdle(Table):
    """Idle time of the device with the most work, inside the steps (inside the span of its work
    where the trace marks none).

    Times are sums over ``steps`` in us; ``idle_us`` has one entry for each of :data:`INPUT`,
    :data:`WAIT`, :data:`DRIVER`, :data:`PROFILER`, :data:`LAUNCHING`, :data:`HOST`, :data:`DEVICE`
    and :data:`UNKNOWN`. ``empty`` is the share of kernels that found the queue empty, ``gap_steps``
    the number of steps with a gap of :data:`HOST`.
    """

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    steps: int = 1
    marked: bool = False
    window_us: float = 0.0
    idle_us: tuple[tuple[str, float], ...] = ()
    gaps: tuple[Gap, ...] = ()
    """The longest of :data:`HOST`."""
    queued: tuple[Gap, ...] = ()
    """The longest of :data:`DEVICE`: work was launched, and did not start."""
    gap_steps: int = 0
    kernels: int = 0
    short: int = 0
    """Kernels shorter than 10 us."""
    median_kernel_us: float = 0.0
    empty: float = 0.0

    @classmethod
    def build(cls, evidence: Evidence) -> DeviceIdle:
        """From the trace. Raises :class:`NotLooked` if it shows no work of a device."""
        line = timed_timeline(evidence)
        found = line.idle
        need_a_device(shown=found is not None, missing=line.device_missing)
        assert found is not None
        use, delay, gaps = line.devices[0], line.launch_delay_ns, found.of_host()
        return cls(
            steps=line.steps.count,
            marked=line.steps.marked,
            window_us=found.windows.length / 1e3,
            idle_us=tuple((cause, ns / 1e3) for cause, ns in found.by_cause().items()),
            gap_steps=len(set(line.steps.of(found.start[gaps]).tolist()) - {-1}),
            gaps=tuple(_gap(line, found, row) for row in gaps[:LONGEST].tolist()),
            queued=tuple(_queued(line, found, row) for row in found.of_queue()[:LONGEST].tolist()),
            kernels=use.kernels,
            short=use.short_kernels,
            median_kernel_us=use.median_kernel_ns / 1e3,
            empty=float((delay < EMPTY_NS).mean()) if len(delay) else 0.0,
        )

    @property
    def share(self) -> float:
        """Part of the windows in which the device had nothing to do."""
        return sum(us for _, us in self.idle_us) / self.window_us if self.window_us else 0.0

    def share_of(self, *causes: str) -> float:
        """Part of the windows that the device was idle because of these."""
        return (
            sum(us for cause, us in self.idle_us if cause in causes) / self.window_us
            if self.window_us
            else 0.0
        )

    def us_per_step(self, *causes: str) -> float:
        """Idle time per step because of these causes, in us."""
        return self.share_of(*causes) * self.window_us / self.steps

    @property
    def small(self) -> bool:
        """Whether most kernels are short: then launching less (fusion, graphs) is the cure."""
        return 2 * self.short >= self.kernels > 0

    @property
    def of_what(self) -> str:
        """What the shares are of, in words."""
        return (
            "the steps' time"
            if self.marked
            else "the time from its first work to its last (the trace marks no steps)"
        )

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        words = {
            INPUT: "idle while the loop had no batch",
            WAIT: "idle because the host had waited for it",
            DRIVER: "idle because the host allocated or freed memory in the driver",
            LAUNCHING: "idle between launches (queue empty, gaps under 500 us)",
            HOST: "idle while the host did something else (gaps from 500 us)",
            DEVICE: "idle with work in the queue",
            PROFILER: "idle while the profiler was busy with itself",
            UNKNOWN: "idle at the end of a step, or for a reason the trace does not show",
        }
        idle = tuple(
            (words[cause], f"{amounts.percent(us / self.window_us)}")
            for cause, us in self.idle_us
            if us >= 1e-3 * self.window_us
        )
        return (
            *idle,
            (
                "kernels",
                (
                    f"{self.kernels:,}, median {amounts.duration(self.median_kernel_us)}, "
                    f"{self.short:,} under 10 us"
                ),
            ),
        )


def _gap(line: Timeline, found: Idle, row: int) -> Gap:
    start, end = int(found.start[row]), int(found.start[row] + found.dry[row])
    at, call = start - int(found.windows.start[0]), int(found.call[row])
    doing = line.host_in(start, end, int(line.trace.calls.thread[call]))
    return Gap(at / 1e3, (end - start) / 1e3, doing, _api(line, call))


def _queued(line: Timeline, found: Idle, row: int) -> Gap:
    end, call = int(found.end[row]), int(found.call[row])
    start = int(found.start[row] + found.dry[row])
    ago = max(0, end - int(line.trace.calls.end[call]))
    at = start - int(found.windows.start[0])
    return Gap(at / 1e3, int(found.queued[row]) / 1e3, api=_api(line, call), launched_us=ago / 1e3)


def _api(line: Timeline, call: int) -> str:
    from auditor.timeline.intervals import plain

    return plain(line.trace.names[line.trace.calls.name[call]])


# -- device time -----------------------------------------------------------------------------------
# Where the time of a trace's device went: compute, communication, copies and idle time, the queue,
# the costliest kernels.


KERNELS, COPIES = 5, 6
"""Numbers of costliest kernels and of kinds of copies that are listed."""


def device_time(evidence: Evidence) -> DeviceTime | None:
    """Of the recording's trace; None if there is none, or it shows no work of a device."""
    try:
        line = timed_timeline(evidence)
    except NotLooked:
        return None
    if line.idle is None or not line.idle.windows.length:
        return None
    use, windows, steps = line.devices[0], line.idle.windows, line.steps.count
    each, total = 1e3 * steps, windows.length
    talk = next((one for one in line.communication if one.device == use.device), None)
    talking = talk.busy.overlap(windows) if talk is not None else 0
    exposed = talk.exposed.overlap(windows) if talk is not None else 0
    computing = talk.computing if talk is not None else _kernels_busy(line)
    idle, compute = line.idle.total, computing.overlap(windows)
    peaks = [one.peak_allocated for one in line.memory if one.device_type != HOST_MEMORY]
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


def _rows(line: Timeline, kind: int) -> Ints:
    rows = line.devices[0].rows
    mine: Ints = rows[line.trace.work.kind[rows] == kind]
    return mine


def _kernels_busy(line: Timeline) -> Intervals:
    from auditor.timeline.intervals import spans_of
    from auditor.timeline.trace import KERNEL

    return spans_of(line.trace.work, _rows(line, KERNEL))


def _inside(line: Timeline, kind: int) -> Ints:
    assert line.idle is not None
    rows = _rows(line, kind)
    return rows[line.idle.windows.holds(line.trace.work.start[rows])]


def _copies(line: Timeline, steps: int) -> tuple[CopyUse, ...]:
    from auditor.timeline.intervals import groups
    from auditor.timeline.trace import MEMCPY

    work, rows = line.trace.work, _inside(line, MEMCPY)
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
    names, rows = line.trace.names, _inside(line, KERNEL)
    calls = np.bincount(line.trace.work.name[rows], minlength=len(names))
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
