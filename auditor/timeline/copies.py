"""Copies between host and device: how they were called, between which memories, how fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from auditor.timeline.intervals import Intervals, union
from auditor.timeline.naming import is_async_copy, mask
from auditor.timeline.trace import MEMCPY, Flags, Ints

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline


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
    asynchronous: Flags
    """Whether the host's call was an asynchronous one."""
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
    asynchronous = np.zeros(len(rows), np.bool_)
    asynchronous[known] = mask(trace.names, trace.calls.name[call[known]], is_async_copy)
    name = work.name[rows]
    return Copies(
        work=rows,
        call=call,
        to_device=mask(trace.names, name, lambda kind: "HtoD" in kind),
        to_host=mask(trace.names, name, lambda kind: "DtoH" in kind),
        pageable=mask(trace.names, name, lambda kind: "Pageable" in kind),
        asynchronous=asynchronous,
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
"""Large pinned copies of a trace from which their median rate is taken in the place of
:data:`LINK_GBS`.
"""


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
    """One value a copy of :class:`Copies`: what it took longer than pinned memory would have, while
    nothing else ran; 0 of others.
    """
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
        beside = union(work.start[other], work.end[other])
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

    Time that two copies share counts for the one that began first. 0 where the bytes are not known.
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
