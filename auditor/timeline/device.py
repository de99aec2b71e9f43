"""Devices: which call launched which work, when each device and stream was busy, and its gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from auditor.timeline.intervals import Intervals, groups, union
from auditor.timeline.trace import KERNEL, MEMCPY, Ints, Trace

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline

SHORT_KERNEL_NS = 10_000
"""A kernel shorter than this costs about as much to launch (5-10 us on the host) as it runs."""


@dataclass(frozen=True)
class Launches:
    """The join of calls and device work by correlation id. -1 where the other side is missing."""

    call_of_work: Ints
    work_of_call: Ints
    """First work of each call; a graph launch has many."""
    copy_of_call: Ints
    """First memcpy of each call."""


def launches(line: Timeline) -> Launches:
    """Which call launched which work."""
    work, calls = line.trace.work, line.trace.calls
    copies = np.flatnonzero(work.kind == MEMCPY)
    copy = join(calls.correlation, work.correlation[copies])
    return Launches(
        call_of_work=join(work.correlation, calls.correlation),
        work_of_call=join(calls.correlation, work.correlation),
        copy_of_call=np.where(copy >= 0, copies[np.maximum(copy, 0)], -1) if len(copies) else copy,
    )


def join(keys: Ints, table: Ints) -> Ints:
    """For each key the first row with the same key, -1 without. Ids of 0 and below join nothing."""
    if not len(table):
        return np.full(len(keys), -1, np.int64)
    order = np.argsort(table, kind="stable")
    ordered = table[order]
    place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    return np.where((ordered[place] == keys) & (keys > 0), order[place], -1)


@dataclass(frozen=True)
class DeviceUse:
    """One device's time. ``span_ns`` runs from its first work to its last."""

    device: int
    name: str
    rows: Ints
    """Rows of :class:`Work` on this device, in file order."""
    busy: Intervals
    kernels: int
    copies: int
    stream_busy_ns: dict[int, int]
    median_kernel_ns: int
    short_kernels: int
    """Kernels shorter than :data:`SHORT_KERNEL_NS`."""
    kernel_ns: int
    """Sum of kernel durations (concurrent kernels count twice)."""

    @property
    def span_ns(self) -> int:
        """First start to last end."""
        return int(self.busy.end[-1] - self.busy.start[0]) if len(self.busy.start) else 0


def devices(line: Timeline) -> tuple[DeviceUse, ...]:
    """The devices that did something, the one with the most work first."""
    found = [_use(line.trace, device, rows) for device, rows in groups(line.trace.work.device)]
    return tuple(sorted(found, key=lambda use: (-use.busy.length, use.device)))


def _use(trace: Trace, device: int, rows: Ints) -> DeviceUse:
    work = trace.work
    kind = work.kind[rows]
    durations = np.sort((work.end[rows] - work.start[rows])[kind == KERNEL])
    streams = groups(work.stream[rows])
    return DeviceUse(
        device=device,
        name=next((known.name for known in trace.info.devices if known.index == device), ""),
        rows=rows,
        busy=union(work.start[rows], work.end[rows]),
        kernels=int((kind == KERNEL).sum()),
        copies=int((kind == MEMCPY).sum()),
        stream_busy_ns={
            stream: union(work.start[rows[part]], work.end[rows[part]]).length
            for stream, part in streams
        },
        median_kernel_ns=int(durations[len(durations) // 2]) if len(durations) else 0,
        short_kernels=int(np.searchsorted(durations, SHORT_KERNEL_NS)),
        kernel_ns=int(durations.sum()),
    )


def ns_by_name(trace: Trace, rows: Ints) -> NDArray[Any]:
    """Time of these rows of :class:`Work`, by the code of their name."""
    work = trace.work
    return np.bincount(
        work.name[rows], weights=work.end[rows] - work.start[rows], minlength=len(trace.names)
    )


def launch_delay_ns(line: Timeline) -> Ints:
    """Time from the begin of the launching call to the start of each kernel: how far the host ran
    ahead. One value a joined kernel.
    """
    trace, call = line.trace, line.launches.call_of_work
    rows = np.flatnonzero((trace.work.kind == KERNEL) & (call >= 0))
    delay: Ints = trace.work.start[rows] - trace.calls.start[call[rows]]
    return delay
