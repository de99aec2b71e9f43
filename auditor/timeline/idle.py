"""Why a device had nothing to do: its idle time inside the steps, gap by gap, and who could have filled it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from auditor.timeline.device import DeviceUse, Launches
from auditor.timeline.intervals import Intervals, union
from auditor.timeline.naming import is_step, mask
from auditor.timeline.phases import LoaderWaits
from auditor.timeline.steps import Steps
from auditor.timeline.trace import KERNEL, Ints, Trace
from auditor.timeline.waits import Waits

LONG_GAP_NS = 500_000
"""Host time that no single launch explains: an operator costs 5 to 100 us of host time, under the profiler too."""

INPUT, WAIT, PROFILER = "input", "wait", "profiler"
LAUNCHING, HOST, DEVICE, UNKNOWN = "launching", "host", "device", "unknown"


@dataclass(frozen=True)
class Idle:
    """Idle time of one device inside the windows that were looked at. Columns of one length, one row a gap; times in ns.

    ``input`` is the part of a gap in which the loop had no batch, ``wait`` what host waits in it cost
    (:attr:`Prices.won_back`), ``profiler`` what the profiler says of itself. The rest belongs to the host where the queue had run dry (the next work was launched after the
    gap began), and to the device where it had not.
    """

    windows: Intervals
    start: Ints
    end: Ints
    input: Ints
    wait: Ints
    profiler: Ints
    rest: Ints
    launched: Ints
    """When the work after the gap was launched; -1 where not known, or where no work follows in the window."""
    thread: Ints
    """Thread of that launch, -1 likewise."""

    @property
    def total(self) -> int:
        """All idle time."""
        return int((self.end - self.start).sum())

    def by_cause(self) -> dict[str, int]:
        """Idle time by who could have filled it; adds up to :attr:`total`."""
        dry = self.launched >= self.start
        long = self.end - self.start >= LONG_GAP_NS
        return {
            INPUT: int(self.input.sum()),
            WAIT: int(self.wait.sum()),
            PROFILER: int(self.profiler.sum()),
            LAUNCHING: int(self.rest[dry & ~long].sum()),
            HOST: int(self.rest[dry & long].sum()),
            DEVICE: int(self.rest[(self.launched >= 0) & ~dry].sum()),
            UNKNOWN: int(self.rest[self.launched < 0].sum()),
        }

    def of_host(self) -> Ints:
        """Rows of long gaps that neither the input nor a wait explains for the greater part, the longest first."""
        long = (self.launched >= self.start) & (self.end - self.start >= LONG_GAP_NS) & (2 * self.rest >= self.end - self.start)
        rows = np.flatnonzero(long)
        return rows[np.argsort(-self.rest[rows], kind="stable")]


def idle(trace: Trace, use: DeviceUse, joined: Launches, steps: Steps, host: tuple[LoaderWaits | None, Waits]) -> Idle:
    """Gaps of a device inside the marked steps; inside the span of its own work where the trace marks none."""
    windows = steps.windows if steps.marked else Intervals(use.busy.start[:1], use.busy.end[-1:])
    gaps = _outside(use.busy).within(windows)
    loader, waits = host
    length = gaps.end - gaps.start
    loading = _loading(trace, loader).covered(gaps.start, gaps.end)
    waiting = np.minimum(_won_in(gaps, waits), length - loading)
    left = length - loading - waiting
    profiler = np.minimum(_profilers_own(trace).covered(gaps.start, gaps.end), left)
    launched, thread = _next_launch(trace, use, joined, gaps)
    return Idle(windows, gaps.start, gaps.end, loading, waiting, profiler, left - profiler, launched, thread)


def _outside(busy: Intervals) -> Intervals:
    """All the time in which the device did nothing, before its first and after its last work too."""
    low, high = np.iinfo(np.int64).min // 4, np.iinfo(np.int64).max // 4
    return Intervals(np.concatenate(([low], busy.end)), np.concatenate((busy.start, [high])))


def _loading(trace: Trace, loader: LoaderWaits | None) -> Intervals:
    rows = loader.rows if loader is not None else np.empty(0, np.int64)
    return union(trace.operators.start[rows], trace.operators.end[rows])


def _profilers_own(trace: Trace) -> Intervals:
    """Time that the profiler spent on itself, as far as it says so (buffers of CUPTI)."""
    own = mask(trace.names, trace.others.category, lambda category: category.lower() == "overhead")
    return union(trace.others.start[own], trace.others.end[own])


def _won_in(gaps: Intervals, waits: Waits) -> Ints:
    """For each gap what the waits that end in it cost."""
    place = np.searchsorted(gaps.start, waits.end, side="right") - 1
    inside = (place >= 0) & (waits.end <= gaps.end[np.maximum(place, 0)]) if len(gaps.start) else np.zeros(len(waits.end), bool)
    won = np.bincount(place[inside], weights=waits.prices.won_back[inside], minlength=len(gaps.start))
    result: Ints = won.astype(np.int64)
    return result


def _next_launch(trace: Trace, use: DeviceUse, joined: Launches, gaps: Intervals) -> tuple[Ints, Ints]:
    """When, and on which thread, the work that ends each gap was launched."""
    work = trace.work
    rows = use.rows[np.argsort(work.start[use.rows], kind="stable")]
    place = np.searchsorted(work.start[rows], gaps.end)
    known = place < len(rows)
    call = joined.call_of_work[rows[np.minimum(place, len(rows) - 1)]]
    known &= (call >= 0) & (work.start[rows[np.minimum(place, len(rows) - 1)]] == gaps.end)
    row = np.maximum(call, 0)
    if not len(trace.calls.start):
        return np.full(len(gaps.start), -1, np.int64), np.full(len(gaps.start), -1, np.int64)
    launched = np.where(known, trace.calls.start[row], -1)
    return launched, np.where(known, trace.calls.thread[row].astype(np.int64), -1)


def queue_depth(trace: Trace, use: DeviceUse, joined: Launches) -> Ints:
    """For each kernel of a device, in order of launch: kernels launched before it that had not started yet."""
    rows = use.rows[(trace.work.kind[use.rows] == KERNEL) & (joined.call_of_work[use.rows] >= 0)]
    launched = np.sort(trace.calls.start[joined.call_of_work[rows]])
    started = np.searchsorted(np.sort(trace.work.start[rows]), launched, side="right")
    result: Ints = np.maximum(np.arange(len(launched)) - started, 0)
    return result


def doing(trace: Trace, stretch: tuple[int, int], thread: int) -> str:
    """The shortest call, operator, annotation or function of the thread that covers at least half of a stretch."""
    spans = (
        (trace.calls.start, trace.calls.end, trace.calls.name, trace.calls.thread),
        (trace.operators.start, trace.operators.end, trace.operators.name, trace.operators.thread),
        (trace.frames.start, trace.frames.end, trace.frames.name, trace.frames.thread),
    )
    found: list[tuple[int, str]] = []
    for start, end, name, threads in spans:
        covered = np.minimum(end, stretch[1]) - np.maximum(start, stretch[0])
        rows = np.flatnonzero((threads == thread) & (2 * covered >= stretch[1] - stretch[0]))
        found += [(int(end[row] - start[row]), trace.names[name[row]]) for row in rows.tolist()]
    return min((one for one in found if not is_step(one[1])), default=(0, ""))[1]


def launched_in(found: Idle, spans: Intervals) -> int:
    """Idle time that ended in launches of the host inside these spans, with an empty queue, the part inside them."""
    dry = found.launched >= found.start
    covered = spans.covered(found.start[dry], np.maximum(found.launched[dry], found.start[dry]))
    return int(np.minimum(covered, found.rest[dry]).sum())
