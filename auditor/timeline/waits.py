"""Where the host waits for a device, why a device idles: how long, at which line, at what cost."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from auditor.timeline.device import DeviceUse, Launches
from auditor.timeline.intervals import (
    BACKWARD_MARK,
    DEVICE_WIDE,
    Intervals,
    groups,
    is_async_copy,
    is_blocking,
    is_launch,
    is_step,
    mask,
    plain,
    spans_of,
)
from auditor.timeline.phases import TraceSteps, loading
from auditor.timeline.trace import KERNEL, MEMSET, Flags, Ints, Small, Trace
from auditor.timeline.tree import CallTree

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline


CAUSES = (
    "item",
    "nonzero",
    "copy to host",
    "copy to device",
    "copy on device",
    "copy",
    "other operator",
    "explicit",
)
ITEM, NONZERO, COPY_TO_HOST, COPY_TO_DEVICE, COPY_ON_DEVICE, COPY, OTHER, EXPLICIT = range(
    len(CAUSES)
)

ITEM_OPERATORS = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero"})
NONZERO_OPERATORS = frozenset(
    """
    aten::nonzero aten::masked_select aten::unique aten::_unique2 aten::nonzero_numpy
    aten::unique_dim aten::unique_consecutive
    """.split()
)


@dataclass(frozen=True)
class Waits:
    """Calls that held the host until a device had got there, in file order.

    These are the synchronise calls, synchronous copies, and asynchronous copies from or to pageable
    memory. Columns of one length; ``operator`` and the two around it are rows of :class:`CallTree`
    (-1: none).
    """

    call: Ints
    """Row of :class:`Calls`."""
    start: Ints
    end: Ints
    cause: Small
    """Index into :data:`CAUSES`, by the innermost operator around the call."""
    operator: Ints
    """Innermost operator around the call."""
    outermost: Ints
    """Outermost operator around the call: what the user called."""
    synchronises: Flags
    """Whether the call itself synchronises; False for copies that block as memory is pageable."""
    backward: Flags
    """Whether the wait is in a backward pass."""
    profiler: Flags
    """The profiler's own waits when it starts and stops: never the user's doing."""
    step: Ints
    """Step in which the wait starts, -1 outside."""
    won_back: Ints
    """What the step would gain without the wait, in ns, as :func:`won_back` counts."""

    @property
    def held(self) -> Ints:
        """Time that the host was held, in ns."""
        return self.end - self.start

    def cause_name(self, row: int, trace: Trace, tree: CallTree) -> str:
        """The cause in words, with the operator's name where the kind alone says too little."""
        kind = CAUSES[int(self.cause[row])]
        return (
            f"{kind} {trace.names[tree.name[self.operator[row]]]}"
            if self.cause[row] == OTHER
            else kind
        )


def waits(line: Timeline) -> Waits:
    """Where the host waited for a device, why, and what it cost."""
    trace, tree, joined, steps = line.trace, line.tree, line.launches, line.steps
    calls = trace.calls
    copy = joined.copy_of_call
    pageable = mask(trace.names, trace.work.name, lambda name: "Pageable" in name)
    blocking = mask(trace.names, calls.name, is_blocking)
    slow_copy = mask(trace.names, calls.name, is_async_copy) & (copy >= 0)
    slow_copy[slow_copy] = pageable[copy[slow_copy]]
    call = np.flatnonzero(blocking | slow_copy)
    node = call + tree.operators
    cause, operator = _causes(trace, tree, joined, call)
    start, end = calls.start[call], calls.end[call]
    step = steps.of(start)
    return Waits(
        call=call,
        start=start,
        end=end,
        cause=cause,
        operator=operator,
        outermost=tree.outermost(node, _operator_rows(trace, tree)),
        synchronises=blocking[call],
        backward=tree.nearest(
            node, mask(trace.names, tree.name, lambda name: name.startswith(BACKWARD_MARK))
        )
        >= 0,
        profiler=_profilers(trace, call, cause, steps),
        step=step,
        won_back=won_back(line, (start, end)),
    )


def _operator_rows(trace: Trace, tree: CallTree) -> Flags:
    """Rows of a cause's operators: dispatched names, no annotations or autograd wrappers."""

    def recognised(name: str) -> bool:
        return name.startswith(("aten::", "torch_")) or (
            "::" in name and not name.startswith("autograd::")
        )

    rows = mask(trace.names, tree.name, recognised)
    rows[tree.operators :] = False
    return rows


def _causes(trace: Trace, tree: CallTree, joined: Launches, call: Ints) -> tuple[Small, Ints]:
    """Cause of each wait, and the operator that it was read from."""
    operator = tree.nearest(call + tree.operators, _operator_rows(trace, tree))
    known, name = operator >= 0, tree.name[operator]
    cause = np.where(known, OTHER, EXPLICIT).astype(np.int8)
    cause[known & mask(trace.names, name, ITEM_OPERATORS.__contains__)] = ITEM
    cause[known & mask(trace.names, name, NONZERO_OPERATORS.__contains__)] = NONZERO
    copying = np.flatnonzero(known & mask(trace.names, name, "aten::copy_".__eq__))
    direction = _directions(trace, tree, joined)
    own = np.where(
        joined.copy_of_call[call[copying]] >= 0, direction[call[copying] + tree.operators], -1
    )
    cause[copying] = np.where(own >= 0, own, direction[operator[copying]])
    return cause, operator


def _directions(trace: Trace, tree: CallTree, joined: Launches) -> Small:
    """The cause that each row's copy would be: a call's own, ``aten::copy_``'s last inside."""
    by_name = np.array([_direction(name) for name in trace.names] or [COPY], np.int8)
    result = np.full(len(tree.name), COPY, np.int8)
    copying = np.flatnonzero(
        (joined.copy_of_call >= 0)
        & mask(trace.names, trace.calls.name, lambda name: "emcpy" in name)
    )
    copying = copying[np.argsort(trace.calls.start[copying], kind="stable")]
    kind = by_name[trace.work.name[joined.copy_of_call[copying]]]
    result[copying + tree.operators] = kind
    copies = mask(trace.names, tree.name, "aten::copy_".__eq__)
    around = tree.nearest(copying + tree.operators, copies)
    result[around[around >= 0]] = kind[around >= 0]
    return result


def _direction(name: str) -> int:
    kinds = {"DtoH": COPY_TO_HOST, "HtoD": COPY_TO_DEVICE, "DtoD": COPY_ON_DEVICE}
    return next((kind for key, kind in kinds.items() if key in name), COPY)


def _profilers(trace: Trace, call: Ints, cause: Small, steps: TraceSteps) -> Flags:
    """The profiler's own waits: it synchronises the device when it starts, and once when it stops.

    These are device-wide waits under no operator: those before the first operator of the trace and
    outside its marked steps, and the last one of the trace if no operator and no launch follows it.
    (A user's own is then the last but one.)
    """
    alone = mask(trace.names, trace.calls.name[call], lambda name: plain(name) in DEVICE_WIDE) & (
        cause == EXPLICIT
    )
    starts = trace.operators.start[~trace.operators.annotation]
    if not alone.any() or not len(starts):
        return np.zeros(len(call), np.bool_)
    working = mask(
        trace.names, trace.calls.name, lambda name: is_launch(name) or is_async_copy(name)
    )
    busy_until = max(starts.max(), trace.calls.start[working].max(initial=starts.max()))
    start = trace.calls.start[call]
    at_stop = (start == start[alone].max()) & (start > busy_until)
    at_start = (start < starts.min()) & ~(steps.marked & (steps.of(start) >= 0))
    result: Flags = alone & (at_start | at_stop)
    return result


# -- memsets ---------------------------------------------------------------------------------------
# Memsets that held the host, and how that is known.


SYNCHRONOUS_MEMORY = re.compile(r"^[^(]*\((Pinned|Managed|Unified)\)")
"""Memory whose memset is synchronous (CUDA runtime API, "API synchronization behavior")."""


def waiting_memsets(line: Timeline) -> Ints:
    """Calls of memsets without ``Async`` in their name that write memory of the synchronous kinds,
    or that were seen to wait.

    Seen means: the device was working when the host called, and the call returned only after the
    memset was done.
    """
    trace, joined = line.trace, line.launches
    calls, work = trace.calls, trace.work
    rows = np.flatnonzero(
        mask(trace.names, calls.name, lambda name: "emset" in name and "Async" not in name)
    )
    rows = rows[joined.work_of_call[rows] >= 0]
    made = joined.work_of_call[rows]
    rows, made = rows[work.kind[made] == MEMSET], made[work.kind[made] == MEMSET]
    start = calls.start[rows]
    working = line.busy.covered(start, start + 1) > 0
    seen = working & (calls.end[rows] >= work.end[made]) & (work.start[made] > start)
    synchronous = mask(trace.names, work.name[made], SYNCHRONOUS_MEMORY.search)
    found: Ints = rows[seen | synchronous]
    return found


# -- prices ----------------------------------------------------------------------------------------


def won_back(line: Timeline, waits: tuple[Ints, Ints]) -> Ints:
    """What the step would gain without each of ``waits`` (starts, ends), in ns, on the device with
    the most work: without the wait, the host would have come to the next launch earlier by the time
    held, and by no more.

    Nor is it more than the device's idle time after it: from the wait's end to the end of the call
    that launched the next work, where the queue had run dry and that work was launched only
    afterwards. From there on the work was queued, and what it waited for is not the host. The time
    ends with the step and with the next wait's end, so that no idle time is counted twice and the
    sum over a step cannot exceed the step. Waits in one gap of the device (a copy to the host and
    its synchronisation) share what that gap gives, in proportion to the time each held the host.
    """
    trace, used, steps = line.trace, line.devices, line.steps
    start, end = waits
    if not used or not len(end):
        return np.zeros(len(end), np.int64)
    busy, rows, work = used[0].busy, used[0].rows, trace.work
    # the first busy interval that ends after the wait
    place = np.searchsorted(busy.end, end, side="right")
    coming = np.minimum(place, len(busy.start) - 1)
    # before the first work no queue ran dry
    idle = (place > 0) & (place < len(busy.start)) & (busy.start[coming] > end)
    launch = line.launches.call_of_work[
        rows[np.minimum(np.searchsorted(work.start[rows], end), len(rows) - 1)]
    ]
    known = launch >= 0
    # nothing is known of the launch: the host had all that time
    launched, queued = (end.copy(), busy.start[coming].copy())
    launched[known] = trace.calls.start[launch[known]]
    queued[known] = np.minimum(queued[known], trace.calls.end[launch[known]])
    step = steps.of(start)
    # which wait ends next (of equal ends only the last may claim idle time)
    order = np.argsort(end, kind="stable")
    following = np.empty(len(end), np.int64)
    following[order] = np.concatenate((end[order][1:], [np.iinfo(np.int64).max]))
    stop = np.minimum(queued, following)
    stop[step >= 0] = np.minimum(stop, steps.end[np.maximum(step, 0)])[step >= 0]
    idle_after = np.where(idle & (launched >= end), np.maximum(stop - end, 0), 0)
    # waits that end while the device works stand alone
    gap = np.where(idle, coming, -1 - np.arange(len(end)))
    return _shared(gap * (steps.count + 1) + step, end, end - start, idle_after)


def call_prices(line: Timeline, rows: Ints) -> Ints:
    """What calls that hold the host (rows of :class:`Calls`) made the device idle after them, in
    ns; with its idle time while they ran never more than they took.
    """
    start, end = line.trace.calls.start[rows], line.trace.calls.end[rows]
    if not line.devices:
        return np.zeros(len(rows), np.int64)
    idle = end - start - line.devices[0].busy.covered(start, end)
    return np.minimum(end - start - idle, won_back(line, (start, end)))


def _shared(gap: Ints, end: Ints, held: Ints, idle: Ints) -> Ints:
    """Of each gap, in time: at no point more than the idle time, or the time held, so far."""
    result = np.zeros(len(end), np.int64)
    for _, together in groups(gap):
        rows = together[np.argsort(end[together], kind="stable")]
        won = total = 0
        for one_held, one_idle in zip(held[rows].tolist(), idle[rows].tolist(), strict=True):
            total += one_held
            won = min(won + one_idle, total)
        result[rows] = [won * one // total if total else 0 for one in held[rows].tolist()]
    return result


# -- idle ------------------------------------------------------------------------------------------
# Why a device had nothing to do: its idle time inside the steps, gap by gap, and who could have
# filled it.


LONG_GAP_NS = 500_000
"""Host time that no launch explains: an operator costs 5 to 100 us, profiled too."""

INPUT, WAIT, DRIVER, PROFILER = "input", "wait", "driver", "profiler"
LAUNCHING, HOST, DEVICE, UNKNOWN = "launching", "host", "device", "unknown"


@dataclass(frozen=True)
class Idle:
    """Idle time of one device inside the windows that were looked at. Columns of one length, one
    row a gap; times in ns.

    Each gap is shared out once, in this order: ``input`` is the part in which the loop had no
    batch, ``wait`` what host waits in it cost (:func:`won_back`), ``driver`` what calls cost
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
    """The call (row of :class:`Calls`) that launched the work after the gap; -1 if none known."""
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
        """The part of each gap by cause; the parts add up to the gap."""
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
        """Idle time by cause; adds up to :attr:`total`."""
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
    """Gaps of the busiest device inside the marked steps, else in its span. None without work."""
    if not line.devices:
        return None
    trace, use, steps, waits = line.trace, line.devices[0], line.steps, line.waits
    windows = steps.windows if steps.marked else Intervals(use.busy.start[:1], use.busy.end[-1:])
    gaps, calls = _outside(use.busy).within(windows), line.driver_calls
    length = gaps.end - gaps.start
    waited = loading(line).covered(gaps.start, gaps.end)
    waiting, of_waits = _shared_out(gaps.of(waits.end), waits.won_back, length - waited)
    left = length - waited - waiting
    gap, ns, whose = _driver_claims(trace, gaps, calls, call_prices(line, calls))
    driver, of_claims = _shared_out(gap, ns, left)
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


def _shared_out(gap: Ints, ns: Ints, left: Ints) -> tuple[Ints, Ints]:
    """What a cause claims of each gap, no more than is left of it; and each claim's part of that.
    ``gap`` is -1 for time outside gaps.
    """
    good = gap >= 0
    gap, part = gap[good], np.zeros(len(ns), np.int64)
    asked = np.bincount(gap, weights=ns[good], minlength=len(left)).astype(np.int64)
    given = np.minimum(asked, left)
    part[good] = (ns[good] * (given[gap] / np.maximum(asked[gap], 1))).astype(np.int64)
    return given, part


def _driver_claims(
    trace: Trace, gaps: Intervals, calls: Ints, after: Ints
) -> tuple[Ints, Ints, Ints]:
    """(gap, ns, whose): the time of gaps in which a call ran, and what it cost after its end."""
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
    return (
        np.concatenate((gap, gaps.of(end))),
        np.concatenate((during, after)),
        np.concatenate((whose, np.arange(len(calls)))),
    )


def _outside(busy: Intervals) -> Intervals:
    low, high = np.iinfo(np.int64).min // 4, np.iinfo(np.int64).max // 4
    return Intervals(np.concatenate(([low], busy.end)), np.concatenate((busy.start, [high])))


def profilers_own(trace: Trace) -> Intervals:
    """Time that the profiler spent on itself, as far as it says so (buffers of CUPTI)."""
    own = mask(trace.names, trace.others.category, lambda category: category.lower() == "overhead")
    return spans_of(trace.others, own)


def _next_launch(trace: Trace, use: DeviceUse, joined: Launches, gaps: Intervals) -> Ints:
    """The call that launched the work which ends each gap."""
    work, rows = trace.work, use.rows
    place = np.searchsorted(work.start[rows], gaps.end)
    first = rows[np.minimum(place, len(rows) - 1)]
    return np.where(
        (place < len(rows)) & (work.start[first] == gaps.end), joined.call_of_work[first], -1
    )


def queue_depth(line: Timeline) -> Ints:
    """For each kernel of the busiest device: kernels launched before it and not started."""
    trace, use, joined = line.trace, line.devices[0], line.launches
    rows = use.rows[(trace.work.kind[use.rows] == KERNEL) & (joined.call_of_work[use.rows] >= 0)]
    launched = np.sort(trace.calls.start[joined.call_of_work[rows]])
    started = np.searchsorted(np.sort(trace.work.start[rows]), launched, side="right")
    result: Ints = np.maximum(np.arange(len(launched)) - started, 0)
    return result


def doing(trace: Trace, stretch: tuple[int, int], thread: int) -> str:
    """The shortest call, operator or function of the thread that covers half of a stretch."""
    found: list[tuple[int, str]] = []
    for table in (trace.calls, trace.operators, trace.frames):
        covered = np.minimum(table.end, stretch[1]) - np.maximum(table.start, stretch[0])
        rows = np.flatnonzero((table.thread == thread) & (2 * covered >= stretch[1] - stretch[0]))
        names = (trace.names[code] for code in table.name[rows])
        found += zip((table.end[rows] - table.start[rows]).tolist(), names, strict=True)
    return min((one for one in found if not is_step(one[1])), default=(0, ""))[1]


def launched_in(found: Idle, spans: Intervals) -> int:
    """:data:`LAUNCHING` inside these spans: the host's part of long gaps is :data:`HOST`."""
    known = (found.call >= 0) & (found.dry < LONG_GAP_NS)
    covered = spans.covered(found.start[known], found.start[known] + found.dry[known])
    return int(np.minimum(covered, found.host[known]).sum())
