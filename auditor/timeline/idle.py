"""Why a device had nothing to do: its idle time inside the steps, gap by gap, and who could have
filled it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from auditor.timeline.device import DeviceUse, Launches
from auditor.timeline.intervals import Intervals, union
from auditor.timeline.naming import is_step, mask
from auditor.timeline.phases import loading
from auditor.timeline.trace import KERNEL, Ints, Trace
from auditor.timeline.waits import call_prices

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline

LONG_GAP_NS = 500_000
"""Host time that no single launch explains: an operator costs 5 to 100 us of host time, under the
profiler too.
"""

INPUT, WAIT, DRIVER, PROFILER = "input", "wait", "driver", "profiler"
LAUNCHING, HOST, DEVICE, UNKNOWN = "launching", "host", "device", "unknown"


@dataclass(frozen=True)
class Idle:
    """Idle time of one device inside the windows that were looked at. Columns of one length, one
    row a gap; times in ns.

    Each gap is shared out once, in this order: ``input`` is the part in which the loop had no
    batch, ``wait`` what host waits in it cost (:attr:`Prices.won_back`), ``driver`` what calls cost
    that take memory from the driver or hold the host for a memset, ``profiler`` what the profiler
    says of itself. The rest is split at the end of the call that launched the work after the gap:
    before it the host had not come so far (``host``), after it the work was queued and did not
    start (``queued``). So the parts add up to the gap, and what is said of each is said once.
    """

    windows: Intervals
    start: Ints
    end: Ints
    input: Ints
    wait: Ints
    driver: Ints
    profiler: Ints
    host: Ints
    queued: Ints
    call: Ints
    """The call (row of :class:`Calls`) that launched the work after the gap; -1 where not known, or
    where none follows in the window.
    """
    dry: Ints
    """Length of the gap up to the end of that call: how long the queue was empty."""
    of_waits: Ints
    """For each host wait of the trace its part of ``wait``: what it cost, and no other."""
    driver_calls: Ints
    """Rows of :class:`Calls` that ``driver`` is about."""
    of_driver: Ints
    """For each of them its part of ``driver``."""

    @property
    def total(self) -> int:
        """All idle time."""
        return int((self.end - self.start).sum())

    @property
    def parts(self) -> dict[str, Ints]:
        """By who could have filled it the part of each gap; they add up to it."""
        long, known, none = self.dry >= LONG_GAP_NS, self.call >= 0, np.zeros_like(self.host)
        return {
            INPUT: self.input,
            WAIT: self.wait,
            DRIVER: self.driver,
            PROFILER: self.profiler,
            LAUNCHING: np.where(known & ~long, self.host, none),
            HOST: np.where(known & long, self.host, none),
            DEVICE: self.queued,
            UNKNOWN: np.where(known, none, self.host),
        }

    def by_cause(self) -> dict[str, int]:
        """Idle time by who could have filled it; adds up to :attr:`total`."""
        return {cause: int(part.sum()) for cause, part in self.parts.items()}

    def of_host(self) -> Ints:
        """Rows of long gaps that neither input nor a wait mostly explains, the longest first."""
        long = (self.call >= 0) & (self.dry >= LONG_GAP_NS) & (2 * self.host >= self.dry)
        rows = np.flatnonzero(long)
        return rows[np.argsort(-self.host[rows], kind="stable")]

    def of_queue(self) -> Ints:
        """Rows of gaps in which queued work did not start, those with most of such time first."""
        rows = np.flatnonzero(self.queued > 0)
        return rows[np.argsort(-self.queued[rows], kind="stable")]


def idle(line: Timeline) -> Idle | None:
    """Gaps of the busiest device inside the marked steps; inside the span of its own work where the
    trace marks none. None where no device worked.
    """
    if not line.devices:
        return None
    trace, use, steps, waits = line.trace, line.devices[0], line.steps, line.waits
    windows = steps.windows if steps.marked else Intervals(use.busy.start[:1], use.busy.end[-1:])
    gaps, calls = _outside(use.busy).within(windows), line.driver_calls
    length = gaps.end - gaps.start
    waited = loading(line).covered(gaps.start, gaps.end)
    ends, won = _gap_of(gaps, waits.end), waits.prices.won_back
    waiting, of_waits = _shared_out(_Claims(ends, won), length - waited)
    left = length - waited - waiting
    claims, whose = _driver_claims(trace, gaps, calls, call_prices(line, calls))
    driver, of_claims = _shared_out(claims, left)
    left = left - driver
    profiler = np.minimum(profilers_own(trace).covered(gaps.start, gaps.end), left)
    left = left - profiler
    call = _next_launch(trace, use, line.launches, gaps)
    dry = length.copy()
    known = call >= 0
    dry[known] = np.clip(trace.calls.end[call[known]] - gaps.start[known], 0, length[known])
    queued = np.minimum(left, length - dry)
    of_driver = np.bincount(whose, weights=of_claims, minlength=len(calls)).astype(np.int64)
    return Idle(
        windows,
        gaps.start,
        gaps.end,
        waited,
        waiting,
        driver,
        profiler,
        left - queued,
        queued,
        call,
        dry,
        of_waits,
        calls,
        of_driver,
    )


@dataclass(frozen=True)
class _Claims:
    """Amounts in ns that somebody claims of a gap; ``gap`` is -1 where it is of none."""

    gap: Ints
    ns: Ints


def _shared_out(claims: _Claims, left: Ints) -> tuple[Ints, Ints]:
    """What is claimed of each gap, no more than is left of it; and each claim's part of that."""
    good = claims.gap >= 0
    asked = np.bincount(claims.gap[good], weights=claims.ns[good], minlength=len(left)).astype(
        np.int64
    )
    given = np.minimum(asked, left)
    part = np.zeros(len(claims.ns), np.int64)
    gap = claims.gap[good]
    part[good] = (claims.ns[good] * (given[gap] / np.maximum(asked[gap], 1))).astype(np.int64)
    return given, part


def _driver_claims(trace: Trace, gaps: Intervals, calls: Ints, after: Ints) -> tuple[_Claims, Ints]:
    """The part of each gap in which a call ran, what it cost after its end, and whose it is."""
    start, end = trace.calls.start[calls], trace.calls.end[calls]
    first = np.searchsorted(gaps.end, start, side="right")
    number = np.maximum(np.searchsorted(gaps.start, end) - first, 0)
    whose = np.repeat(np.arange(len(calls)), number)
    gap = (
        np.repeat(first, number)
        + np.arange(len(whose))
        - np.repeat(np.cumsum(number) - number, number)
    )
    during = np.minimum(end[whose], gaps.end[gap]) - np.maximum(start[whose], gaps.start[gap])
    claims = _Claims(np.concatenate((gap, _gap_of(gaps, end))), np.concatenate((during, after)))
    return claims, np.concatenate((whose, np.arange(len(calls))))


def _gap_of(gaps: Intervals, times: Ints) -> Ints:
    """The gap in which each time lies, its end included; -1 for none."""
    if not len(gaps.start):
        return np.full(len(times), -1, np.int64)
    place = np.searchsorted(gaps.start, times, side="right") - 1
    return np.where((place >= 0) & (times <= gaps.end[np.maximum(place, 0)]), place, -1)


def _outside(busy: Intervals) -> Intervals:
    low, high = np.iinfo(np.int64).min // 4, np.iinfo(np.int64).max // 4
    return Intervals(np.concatenate(([low], busy.end)), np.concatenate((busy.start, [high])))


def profilers_own(trace: Trace) -> Intervals:
    """Time that the profiler spent on itself, as far as it says so (buffers of CUPTI)."""
    own = mask(trace.names, trace.others.category, lambda category: category.lower() == "overhead")
    return union(trace.others.start[own], trace.others.end[own])


def _next_launch(trace: Trace, use: DeviceUse, joined: Launches, gaps: Intervals) -> Ints:
    """The call that launched the work which ends each gap."""
    work = trace.work
    rows = use.rows[np.argsort(work.start[use.rows], kind="stable")]
    place = np.searchsorted(work.start[rows], gaps.end)
    first = rows[np.minimum(place, len(rows) - 1)]
    result: Ints = np.where(
        (place < len(rows)) & (work.start[first] == gaps.end), joined.call_of_work[first], -1
    )
    return result


def queue_depth(line: Timeline) -> Ints:
    """For each kernel of the busiest device, in order of launch: kernels launched before it and not
    started.
    """
    trace, use, joined = line.trace, line.devices[0], line.launches
    rows = use.rows[(trace.work.kind[use.rows] == KERNEL) & (joined.call_of_work[use.rows] >= 0)]
    launched = np.sort(trace.calls.start[joined.call_of_work[rows]])
    started = np.searchsorted(np.sort(trace.work.start[rows]), launched, side="right")
    result: Ints = np.maximum(np.arange(len(launched)) - started, 0)
    return result


def doing(trace: Trace, stretch: tuple[int, int], thread: int) -> str:
    """The shortest call, operator or function of the thread that covers half of a stretch."""
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
    """:data:`LAUNCHING` as far as it lies inside these spans: the host's part of long gaps is
    :data:`HOST`, which KERN002 prices.
    """
    known = (found.call >= 0) & (found.dry < LONG_GAP_NS)
    covered = spans.covered(found.start[known], found.start[known] + found.dry[known])
    return int(np.minimum(covered, found.host[known]).sum())
