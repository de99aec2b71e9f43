"""Devices: which call launched which work, when each was busy, and its copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from auditor.timeline.intervals import Intervals, groups, mask, spans_of
from auditor.timeline.trace import KERNEL, MEMCPY, Flags, Ints, Trace

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
        copy_of_call=np.append(copies, -1)[copy],
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
    """Rows of :class:`Work` on this device, in order of time."""
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
    rows = rows[np.argsort(work.start[rows], kind="stable")]
    kind = work.kind[rows]
    durations = np.sort((work.end[rows] - work.start[rows])[kind == KERNEL])
    return DeviceUse(
        device=device,
        name=next((known.name for known in trace.info.devices if known.index == device), ""),
        rows=rows,
        busy=spans_of(work, rows),
        kernels=int((kind == KERNEL).sum()),
        copies=int((kind == MEMCPY).sum()),
        stream_busy_ns={
            stream: spans_of(work, rows[part]).length for stream, part in groups(work.stream[rows])
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
    """Time from the launching call's begin to each kernel's start: how far the host ran ahead."""
    trace, call = line.trace, line.launches.call_of_work
    rows = np.flatnonzero((trace.work.kind == KERNEL) & (call >= 0))
    return trace.work.start[rows] - trace.calls.start[call[rows]]


# -- copies ----------------------------------------------------------------------------------------
# Copies between host and device: how they were called, between which memories, how fast.


@dataclass(frozen=True)
class Copies:
    """Every copy that a device made. Columns; ``call`` is -1 where the trace lacks it."""

    work: Ints
    """Row of :class:`Work`."""
    call: Ints
    """Row of :class:`Calls`."""
    to_device: Flags
    to_host: Flags
    pageable: Flags
    """Whether one side is pageable host memory: then even an asynchronous call waits."""
    bytes: Ints
    """-1 where the trace does not say (AMD before 2024)."""
    ns: Ints
    """Time on the device."""
    step: Ints
    """Step in which the host called (in which the device began, without a call); -1 outside."""


def copies(line: Timeline) -> Copies:
    """Every copy that a device made."""
    trace, work = line.trace, line.trace.work
    rows = np.flatnonzero(work.kind == MEMCPY)
    call = line.launches.call_of_work[rows]
    known = call >= 0
    begin = work.start[rows].copy()
    begin[known] = trace.calls.start[call[known]]
    name = work.name[rows]
    return Copies(
        work=rows,
        call=call,
        to_device=mask(trace.names, name, lambda kind: "HtoD" in kind),
        to_host=mask(trace.names, name, lambda kind: "DtoH" in kind),
        pageable=mask(trace.names, name, lambda kind: "Pageable" in kind),
        bytes=work.bytes[rows],
        ns=work.end[rows] - work.start[rows],
        step=line.steps.of(begin),
    )


# -- pageable memory -------------------------------------------------------------------------------

LINK_GBS = 12.0
"""GB/s (1e9 bytes) that pinned memory reaches at least: PCIe 3.0 x16, whose raw rate is 15.75 GB/s.
Mark Harris, "How to Optimize Data Transfers in CUDA C/C++" (NVIDIA, 2012), has 12 GB/s pinned
beside 4 to 5 GB/s pageable as typical. Links of later cards (PCIe 4.0 since A100, 5.0 since H100)
are two and four times as fast, so a price by this rate is too low rather than too high."""

OVERHEAD_NS = 10_000
"""What a copy takes beside its bytes (the same source: about 10 us)."""

LARGE = 1 << 20
"""Bytes from which a copy's rate is that of the link, not that of its overhead."""

ENOUGH = 3
"""Large pinned copies of a trace from which their median rate replaces :data:`LINK_GBS`."""


@dataclass(frozen=True)
class PinnedRate:
    """GB/s of pinned memory in one direction; ``seen``: copies of the trace ran at it."""

    gbs: float = LINK_GBS
    seen: bool = False

    def __str__(self) -> str:
        source = (
            "as the pinned copies of this trace"
            if self.seen
            else "PCIe 3.0 x16; later links reach more"
        )
        return f"{self.gbs:.3g} GB/s ({source})"


@dataclass(frozen=True)
class Pageable:
    """What the copies of a trace lose because their memory is pageable."""

    slow_ns: Ints
    """One value a copy: what it took longer than pinned, while nothing else ran; 0 of others."""
    to_device: PinnedRate
    to_host: PinnedRate


def pageable(line: Timeline) -> Pageable:
    """What copies lose that a call of the host waited for (the first of a call that made several)."""
    trace, work, made = line.trace, line.trace.work, line.copies
    known = made.call >= 0
    pinned = mask(trace.names, work.name[made.work], lambda kind: "Pinned" in kind)
    slow, rates = np.zeros(len(made.work), np.int64), []
    for direction in (made.to_device, made.to_host):
        rates.append(rate_of(made.bytes[direction], made.ns[direction], pinned[direction]))
        other = np.ones(len(work.start), np.bool_)
        other[made.work[direction]] = False
        beside = spans_of(work, other)
        rows = np.flatnonzero(direction)
        copies = made.work[rows]
        slow[rows] = slow_ns(
            work.start[copies], work.end[copies], made.bytes[rows], beside, rates[-1]
        )
    held = np.zeros(len(made.work), np.bool_)
    held[known] = line.launches.copy_of_call[made.call[known]] == made.work[known]
    return Pageable(np.where(held & made.pageable, slow, 0), rates[0], rates[1])


def rate_of(size: Ints, ns: Ints, pinned: Flags) -> PinnedRate:
    """From the copies of one direction: their bytes, device time, and which are pinned."""
    large = pinned & (size >= LARGE) & (ns > 0)
    if np.count_nonzero(large) < ENOUGH:
        return PinnedRate()
    return PinnedRate(float(np.median(size[large] / ns[large])), seen=True)


def slow_ns(start: Ints, end: Ints, size: Ints, beside: Intervals, rate: PinnedRate) -> Ints:
    """What each copy took longer than ``rate`` gives, as far as no other work ran ``beside`` it:
    hidden time costs nothing.

    Time that two copies share counts for the one that began first. 0 if the bytes are not known.
    """
    order = np.argsort(start, kind="stable")
    reach = (
        np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end[order])[:-1]))
        if len(order)
        else order
    )
    begin = np.empty_like(start)
    begin[order] = np.minimum(np.maximum(start[order], reach), end[order])
    alone = end - begin - beside.covered(begin, end)
    needed = np.minimum(OVERHEAD_NS + size / rate.gbs, end - start)
    slower = 1 - needed / np.maximum(end - start, 1)
    return np.where(size > 0, alone * slower, 0).astype(np.int64)
