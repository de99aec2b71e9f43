"""Arithmetic of time intervals on sorted arrays: unions, gaps. Ends are exclusive; times in ns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from auditor.timeline.trace import Codes, Flags, Ints, Spans

NONE: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class Intervals(Spans):
    """Sorted intervals that neither touch nor overlap."""

    @property
    def length(self) -> int:
        """Time covered."""
        return int((self.end - self.start).sum())

    def covered_before(self, times: Ints) -> Ints:
        """Time covered up to each of ``times``."""
        if not len(self.start):
            return np.zeros(len(times), np.int64)
        whole = np.concatenate(([0], np.cumsum(self.end - self.start)))
        place = np.searchsorted(self.start, times, side="right")
        last = np.maximum(place - 1, 0)
        return np.where(
            place > 0, whole[last] + np.minimum(times, self.end[last]) - self.start[last], 0
        )

    def covered(self, start: Ints, end: Ints) -> Ints:
        """Time covered inside each of the given intervals (which may overlap one another)."""
        return self.covered_before(np.maximum(start, end)) - self.covered_before(start)

    def holds(self, times: Ints) -> Flags:
        """Whether each of ``times`` lies inside."""
        place = np.searchsorted(self.start, times, side="right") - 1
        return (
            (place >= 0) & (times < self.end[place])
            if len(self.start)
            else np.zeros(len(times), np.bool_)
        )

    def overlap(self, other: Intervals) -> int:
        """Time covered by both."""
        return int(self.covered(other.start, other.end).sum())

    def gaps(self) -> Intervals:
        """The time between the first start and the last end that is not covered."""
        return Intervals(self.end[:-1], self.start[1:])

    def within(self, other: Intervals) -> Intervals:
        """What both cover."""
        edges = np.concatenate((self.start, self.end, other.start, other.end))
        steps = np.repeat(
            [1, -1, 1, -1], [len(self.start), len(self.end), len(other.start), len(other.end)]
        )
        order = np.lexsort((steps, edges))
        inside = np.flatnonzero(np.cumsum(steps[order]) == 2)
        sorted_edges = edges[order]
        keep = inside[sorted_edges[inside + 1] > sorted_edges[inside]] if len(inside) else inside
        return Intervals(sorted_edges[keep], sorted_edges[keep + 1])


def without(one: Intervals, other: Intervals) -> Intervals:
    """What one covers and the other does not."""
    if not len(one.start):
        return one
    edges = (
        np.concatenate(([one.start[0]], other.end)),
        np.concatenate((other.start, [one.end[-1]])),
    )
    low, high = np.minimum(edges[0], edges[1]), edges[1]
    return one.within(Intervals(low[high > low], high[high > low]))


def union(start: Ints, end: Ints) -> Intervals:
    """The union of any intervals. Empty ones count: a kernel below the clock's tick ends a gap."""
    if not len(start):
        return Intervals(NONE, NONE)
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    last = np.concatenate((first[1:] - 1, [len(start) - 1]))
    return Intervals(start[first], reach[last])


def spans_of(table: Spans, rows: Ints | Flags) -> Intervals:
    """The time that these rows of a table cover."""
    return union(table.start[rows], table.end[rows])


def groups(keys: Ints | Codes) -> list[tuple[int, Ints]]:
    """(key, rows with that key in order) for each key."""
    if not len(keys):
        return []
    if (keys == keys[0]).all():
        return [(int(keys[0]), np.arange(len(keys)))]
    order = np.argsort(keys, kind="stable")
    edges = np.flatnonzero(np.diff(keys[order])) + 1
    return [(int(keys[part[0]]), part) for part in np.split(order, edges)]


# -- naming ----------------------------------------------------------------------------------------
# Names as the trace spells them: which calls block, launch or allocate, which kernels communicate,
# and names to row masks.


_SUFFIX = re.compile(r"(_v\d{4,5}|_ptsz|_ptds|_spt)+$")
"""CUPTI's API versions: ``cudaLaunchKernel_v7000``, ``_ptsz`` (per-thread default streams)."""

BLOCKING = frozenset(
    """
    cudaStreamSynchronize cudaDeviceSynchronize cudaEventSynchronize cudaThreadSynchronize
    cudaMemcpy cuStreamSynchronize cuCtxSynchronize cuEventSynchronize hipStreamSynchronize
    hipDeviceSynchronize hipEventSynchronize hipMemcpy hipMemcpyWithStream
    """.split()
)
DEVICE_WIDE = frozenset(
    {"cudaDeviceSynchronize", "cudaThreadSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize"}
)
ALLOCATOR = frozenset(
    """
    cudaMalloc cudaFree cudaHostAlloc cudaFreeHost cudaHostRegister cudaMallocHost cudaMallocAsync
    cudaFreeAsync hipMalloc hipFree hipHostMalloc hipHostFree cuMemCreate cuMemMap cuMemUnmap
    cuMemRelease cuMemSetAccess
    """.split()
)
STREAM_ORDERED = frozenset({"cudaMallocAsync", "cudaFreeAsync"})
"""Calls of these that do not wait: the cudaMallocAsync backend makes them by design."""
_LAUNCH = re.compile(
    r"cudaLaunch(Cooperative)?Kernel|cudaLaunchKernelExC|cuLaunchKernel|hipLaunchKernel|hip(Ext)?ModuleLaunchKernel|hipExtLaunchKernel"
)
GRAPH_LAUNCHES = frozenset({"cudaGraphLaunch", "hipGraphLaunch"})
_COMMUNICATION = re.compile(r"(nccl|rccl)", re.IGNORECASE)
STEP_MARK = "ProfilerStep"
BACKWARD_MARK = "autograd::engine::evaluate_function"


def mask(names: Sequence[str], codes: Codes, wanted: Callable[[str], object]) -> Flags:
    """Rows whose name is wanted; each different name is asked about once."""
    known = np.fromiter((bool(wanted(name)) for name in names), np.bool_, len(names))
    return known[codes] if known.any() else np.zeros(len(codes), np.bool_)


def plain(call: str) -> str:
    """A runtime call's name without the API version that CUPTI appends."""
    return _SUFFIX.sub("", call)


def is_blocking(call: str) -> bool:
    """Whether the host is held until the device has got there, whatever the arguments are."""
    return plain(call) in BLOCKING


def is_async_copy(call: str) -> bool:
    """Whether the call is an asynchronous copy; with pageable memory it blocks none the less."""
    return "emcpyAsync" in call


def is_launch(call: str) -> bool:
    """Whether the call launches one kernel."""
    return _LAUNCH.match(call) is not None


def is_communication(kernel: str) -> bool:
    """Whether the kernel is a collective's, or a send or receive."""
    return _COMMUNICATION.match(kernel) is not None


def is_step(name: str) -> bool:
    """``ProfilerStep#7``, as torch.profiler.profile.step() writes it(rarely ``ProfilerStep*``)."""
    return name.startswith(STEP_MARK)


def is_loading(name: str) -> bool:
    """``enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__``: a wait for a batch."""
    return name.startswith("enumerate") and "DataLoader" in name
