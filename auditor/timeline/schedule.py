"""A trace as what a replay needs: what each host thread did in which order, what it launched, and
what it waited for.

Times are int64 nanoseconds on the trace's clock, as everywhere in :mod:`auditor.timeline`. What a
replay does not change is kept as it was recorded: the length of all device work (collectives with
their waiting for other ranks), the host's time between calls, and calls that only take time
(cudaMalloc, cudaFree, a first launch that loads its module).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from auditor.timeline.device import Launches, join
from auditor.timeline.intervals import DEVICE_WIDE, GRAPH_LAUNCHES, groups, is_launch, mask, plain
from auditor.timeline.trace import Codes, Flags, Ints, Trace

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline


QUEUE = 1024
"""Launches of one stream that the driver holds before the next one waits for the oldest to start:
HTA's ``get_queue_length_summary`` takes this length, and recordings show that depth and no more."""

SLOW_LAUNCH_NS = 50_000
"""A launch that finds the queue full takes as long as the next kernel; a free one takes 5 us, and
50 us is what HTA calls a slow runtime call."""

NO_CALL = -1
NO_EVENT = -2
"""Stands for the event before the first one of a thread, in lists."""


@dataclass(frozen=True)
class Schedule:
    """Events of the host in order of their recorded start: calls that launched work, waited or held
    the host, the steps' boundaries, and work whose launch the trace does not show. Columns of one
    length, but for those that say otherwise.
    """

    start: Ints
    end: Ints
    call: Ints
    """Row of :class:`Calls`; :data:`NO_CALL` for boundaries of steps and work without a launch."""
    launching: Flags
    """Whether the call launches a kernel."""
    thread: Ints
    own: Ints
    """Time that the call takes alone: without what it waited for, or a full queue."""
    before: list[int]
    """The event of the same thread that ended last before this one began, :data:`NO_EVENT`
    without. This and what follows are lists where a replay goes through them one by one.
    """
    after: list[int]
    """The event, of any thread, after which this one begins, -1 for the first ones."""
    gap: Ints
    """The host's time between that event's end and this one's start."""
    waited: list[tuple[int, ...]]
    """Rows of :class:`Streams` that must have ended before the call returns."""
    late: list[int]
    """From the last of those ends to the call's return; below 0 if it returns before."""
    queued: list[list[int]]
    """Rows of :class:`Streams` that each event queues."""
    boundaries: list[int]
    """Events that are boundaries of steps, in order: the begin and the end of each step."""
    streams: Streams
    full: list[int]
    """For each work the row whose begin makes room in its stream's queue; -1 if none is awaited."""
    steps: int
    limit: int
    """Launches that a stream holds."""
    unlaunched: float
    """Share of the device's time inside the window whose launch the trace does not show."""

    @property
    def count(self) -> int:
        """Number of events."""
        return len(self.start)


def schedule(line: Timeline) -> Schedule | None:
    """The schedule of a trace's steps (or all of it); None without work that a call launched."""
    trace, joined, steps = line.trace, line.launches, line.steps
    calls, work = trace.calls, trace.work
    window = int(steps.start.min()), int(steps.end.max())
    wanted = joined.work_of_call >= 0
    wanted[line.waits.call] = True
    wanted[line.driver_calls] = True
    wanted &= (calls.start >= window[0]) & (calls.start < window[1])
    rows = np.flatnonzero(wanted)
    known = joined.call_of_work >= 0
    if not known.any() or not len(rows):
        return None
    begin = np.where(known, calls.start[joined.call_of_work], work.start)
    inside = (begin >= window[0]) & (begin < window[1])
    orphans = np.flatnonzero(inside & ~known)
    events = _events(line, rows, orphans)
    order = np.lexsort((events[2] != NO_CALL, events[0]))
    start, end, call, orphan, boundary, thread = (column[order] for column in events)
    event_of_call = np.full(len(calls.start), -1)
    event_of_call[call[call >= 0]] = np.flatnonzero(call >= 0)
    before, after, gap = host_links(start, end, thread, _busy_since(line, call, start))
    streams = streams_of(trace, joined, event_of_call, orphan, begin)
    launching = np.zeros(len(call), np.bool_)
    launching[call >= 0] = mask(trace.names, calls.name[call[call >= 0]], is_launch)
    own, limit = _own(launching, end - start, streams.depth(start))
    waited, late = waited_for(line, event_of_call, streams, own)
    queued: list[list[int]] = [[] for _ in start]
    for row, event in enumerate(streams.event.tolist()):
        if event >= 0:
            queued[event].append(row)
    full = np.where(known[streams.work], streams.places_before(limit), -1)
    length = work.end - work.start
    total = int(length[inside].sum())
    return Schedule(
        start=start,
        end=end,
        call=call,
        launching=launching,
        thread=thread,
        own=own,
        before=before,
        after=after,
        gap=gap,
        waited=waited,
        late=late,
        queued=queued,
        boundaries=np.argsort(boundary, kind="stable")[-2 * steps.count :].tolist(),
        streams=streams,
        full=full.tolist(),
        steps=steps.count,
        limit=limit,
        unlaunched=int(length[orphans].sum()) / total if total else 0.0,
    )


def _events(line: Timeline, rows: Ints, orphans: Ints) -> tuple[Ints, ...]:
    """Columns ``start``, ``end``, ``call``, ``orphan``, ``boundary``, ``thread``, unordered."""
    calls, work, steps = line.trace.calls, line.trace.work, line.steps
    marks = np.empty(2 * steps.count, np.int64)
    marks[0::2], marks[1::2] = steps.start, steps.end
    none, nobody = np.full(len(marks), -1), np.full(len(orphans), -1)
    lost = np.full(len(rows), -1)
    return (
        np.concatenate((calls.start[rows], work.start[orphans], marks)),
        np.concatenate((calls.end[rows], work.start[orphans], marks)),
        np.concatenate((rows, nobody, none)),
        np.concatenate((lost, orphans, none)),
        np.concatenate((lost, nobody, np.arange(len(marks)))),
        np.concatenate(
            (calls.thread[rows], nobody - 1, np.full(len(marks), line.main_thread))
        ).astype(np.int64),
    )


def _busy_since(line: Timeline, call: Ints, start: Ints) -> Ints:
    """For each event the begin of the outermost operator around it: since then its thread was busy
    by itself. The event's own start where there is none.
    """
    tree, spans = line.tree, line.trace.operators
    operator = np.zeros(len(tree.name), np.bool_)
    operator[: tree.operators] = ~spans.annotation
    result = start.copy()
    known = np.flatnonzero(call >= 0)
    top = tree.outermost(call[known] + tree.operators, operator)
    found = top >= 0
    result[known[found]] = spans.start[top[found]]
    return result


def _own(launching: Flags, took: Ints, depth: Ints) -> tuple[Ints, int]:
    """What each call takes alone, and how many launches a stream holds."""
    held = launching & (depth >= QUEUE - 1) & (took >= SLOW_LAUNCH_NS)
    usual = _middle(took[launching & ~held])
    own = np.where(held, np.minimum(took, usual), took)
    return own, max(QUEUE, int(depth.max(initial=0)))


# -- links -----------------------------------------------------------------------------------------
# What each event of the host follows: the one before it on its thread, or one of another thread
# that handed over (a backward pass runs on a thread of its own while the loop's thread waits).


def host_links(
    start: Ints, end: Ints, thread: Ints, since: Ints
) -> tuple[list[int], list[int], Ints]:
    """(event before on the same thread, event that it follows, time between that one's end and its
    start) for events in order of their start; :data:`NO_EVENT` or -1 without one, and then the time
    counts from the first event's start.

    An event follows the one of its thread that ended last, unless another thread's ended after that
    one and before its own thread was busy again (``since`` is the begin of the outermost operator
    around each event): nothing else tells in a trace that one thread went on when another was done.
    """
    before: list[int] = []
    after: list[int] = []
    last_of: dict[int, int] = {}
    running: list[tuple[int, int]] = []
    over: list[int] = []
    over_at: list[int] = []
    starts, ends, threads = start.tolist(), end.tolist(), thread.tolist()
    for row, (begin, busy) in enumerate(zip(starts, since.tolist(), strict=True)):
        while running and running[0][0] <= begin:
            ended, latest = heappop(running)
            over.append(latest)
            over_at.append(ended)
            last_of[threads[latest]] = latest
        follows = last_of.get(threads[row], NO_EVENT)
        before.append(follows)
        place = bisect_right(over_at, busy) - 1
        if place >= 0 and (follows < 0 or ends[follows] < over_at[place]):
            follows = over[place]
        after.append(max(follows, -1))
        heappush(running, (ends[row], row))
    return before, after, start - np.append(end, start[:1])[after]


# -- waited ----------------------------------------------------------------------------------------
# What each wait of the host waited for: which work had to end before it returned.


TICK_NS = 2_000
"""Host and device times of one moment differ by this much: clocks are joined to about 1 us, and
old traces count in whole microseconds."""

EVENTS = frozenset({"cudaEventSynchronize", "cuEventSynchronize", "hipEventSynchronize"})


def waited_for(
    line: Timeline, event_of_call: Ints, streams: Streams, own: Ints
) -> tuple[list[tuple[int, ...]], list[int]]:
    """``waited`` and ``late`` of a schedule. In ``own`` waits get what they take alone."""
    rows: list[tuple[int, ...]] = [()] * len(own)
    late = [0] * len(own)
    calls, finder = line.trace.calls, _Finder(line, streams)
    held: list[int] = []
    free: list[int] = []
    for wait, one in enumerate(line.waits.call.tolist()):
        event = int(event_of_call[one])
        if event < 0:
            continue
        rows[event] = found = finder.of(wait, one)
        begin = int(calls.start[one])
        last = max((int(streams.end[row]) for row in found), default=begin)
        late[event] = int(calls.end[one]) - last
        (held if last > begin else free).append(event)
    after = _middle(np.array([late[event] for event in held]))
    own[held] = np.minimum(own[held], _middle(own[free]))
    for events, most in ((held, LONGEST_NS), (free, max(after, 0))):
        for event in events:
            late[event] = min(late[event], most)
    return rows, late


class _Finder:
    """Finds the work that a call waited for."""

    def __init__(self, line: Timeline, streams: Streams) -> None:
        trace, joined = line.trace, line.launches
        self.trace, self.waits, self.joined, self.streams = trace, line.waits, joined, streams
        self.row_of_work = np.full(len(trace.work.start), -1)
        self.row_of_work[streams.work] = np.arange(len(streams.work))
        self.rows_of = dict(groups(streams.stream))
        call = joined.call_of_work[streams.work]
        queued = np.where(call >= 0, trace.calls.start[call], streams.start)
        self.queued = {key: queued[rows] for key, rows in self.rows_of.items()}
        self.reach = {
            key: np.maximum.accumulate(streams.end[rows]) for key, rows in self.rows_of.items()
        }
        self.number: dict[int, list[int]] = {}  # each device has its own
        for key, rows in self.rows_of.items():
            number = int(trace.work.stream[streams.work[rows[0]]])
            self.number.setdefault(number, []).append(key)
        said = join(trace.calls.correlation, trace.syncs.correlation)
        self.said = np.append(trace.syncs.stream, -1)[said]
        self.last_copy: dict[int, int] = {}

    def of(self, wait: int, call: int) -> tuple[int, ...]:
        """Rows of :class:`Streams`."""
        copy = int(self.joined.copy_of_call[call])
        operator = int(self.waits.operator[wait])
        end = int(self.trace.calls.end[call])
        if copy >= 0:
            row = int(self.row_of_work[copy])
            if operator >= 0 and row >= 0:
                self.last_copy[operator] = int(self.streams.stream[row])
            begun = row >= 0 and end > self.streams.start[row]
            return (row,) if begun else ()
        name = plain(self.trace.names[self.trace.calls.name[call]])
        known = self._streams(call, operator, name)
        return self._last(known, call, whole=name not in EVENTS)

    def _streams(self, call: int, operator: int, name: str) -> list[int]:
        """Streams that the call may be about."""
        said = int(self.said[call])
        if said >= 0 and said in self.number and name not in DEVICE_WIDE:
            return self.number[said]
        if name not in DEVICE_WIDE and name not in EVENTS and operator in self.last_copy:
            return [self.last_copy[operator]]
        return list(self.rows_of)

    def _last(self, known: list[int], call: int, whole: bool) -> tuple[int, ...]:
        """The last work that each stream held when the call began, where it had ended when the call
        returned; of a wait for an event (not ``whole``) the last that had.
        """
        begin, end = int(self.trace.calls.start[call]), int(self.trace.calls.end[call])
        found = []
        for key in known:
            queued = int(np.searchsorted(self.queued[key], begin))
            ended = int(np.searchsorted(self.reach[key], end + TICK_NS, side="right"))
            if queued and (queued <= ended or (not whole and ended)):
                found.append(int(self.rows_of[key][min(queued, ended) - 1]))
        return tuple(found)


# -- streams ---------------------------------------------------------------------------------------
# Work of devices by stream: in which order it was queued, what it had to come after, and how long
# after that it began.


LONGEST_NS = 50_000
"""A device begins queued work within this time of what it waited for. Launches that find the queue
empty show 3 to 20 us. Longer delays have a cause that the trace does not show: they are not taken
over, so that a replay that misses much is told from the recording by its length."""

SOON_NS = 20_000
"""Work that begins so soon after work of another stream, and was held by nothing else that the
trace shows, waited for it: recordings show 1 to 3 us on NVIDIA's devices, 10 to 18 us on AMD's."""

LONG_AGO = -(1 << 61)
"""Before every time of a trace."""

STREAM_WAITS = frozenset({"cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent"})
"""Calls that make one stream wait for another. The work of a graph launch has streams of its own,
and waits for the stream that it was launched on, as that one waits for it."""


@dataclass(frozen=True)
class Streams:
    """Work in the order in which the host queued it. A row a work, but for what says otherwise."""

    work: Ints
    """Row of :class:`Work`."""
    event: Ints
    """The event of the schedule that queued it; -1 for work queued before the window."""
    stream: Ints
    """Number of device and stream together, from 0."""
    start: Ints
    end: Ints
    lag: list[int]
    """From the begin of the launching call to the work's begin, where nothing else held it."""
    distance: list[int]
    """From the end of the work before it on its stream, where that held it."""
    depends: tuple[tuple[tuple[int, int], ...], ...]
    """For each the (row, distance) of work on other streams whose end it came after."""
    rigid: list[int]
    """The row from whose begin it keeps its distance (of the same graph launch), else -1."""
    simple: list[bool]
    """Whether it begins by its launch: the trace shows one, and it is no later work of a graph."""

    @cached_property
    def lists(self) -> tuple[list[int], list[int], list[int]]:
        """``stream``, ``start`` and ``end`` for a replay."""
        return self.stream.tolist(), self.start.tolist(), self.end.tolist()

    def depth(self, times: Ints) -> Ints:
        """For each event's start the launches on the stream of its work that had not begun."""
        result = np.zeros(len(times), np.int64)
        for _, rows in groups(self.stream):
            begun = np.sort(self.start[rows])
            mine = rows[self.event[rows] >= 0]
            queued = np.searchsorted(rows, mine)
            done = np.searchsorted(begun, times[self.event[mine]], side="right")
            result[self.event[mine]] = np.maximum(queued - done, 0)
        return result

    def places_before(self, limit: int) -> Ints:
        """For each work the row that was queued ``limit`` places before it on its stream, -1 where
        there is none. Work of one event is queued in the order of the rows.
        """
        order = np.lexsort((self.event, self.stream))
        result = np.full(len(order), -1)
        if 0 < limit < len(order):
            row, other = order[limit:], order[:-limit]
            result[row] = np.where(self.stream[row] == self.stream[other], other, -1)
        return result


@dataclass(frozen=True)
class _Queue:
    """Work in the order in which it was queued."""

    begin: Ints
    """Begin of the call that launched each."""
    held: Ints
    """How long that call took: until then the work may be on the way (a staged copy)."""
    event: Ints
    stream: Ints
    start: Ints
    end: Ints
    device: Codes
    told: Ints
    """When a stream was told to wait for another one, in order."""

    @cached_property
    def by_stream(self) -> list[tuple[int, Ints]]:
        return groups(self.stream)

    def before(self, values: Ints) -> Ints:
        """For each work the value of the one before it on its stream."""
        result = np.full(len(values), LONG_AGO)
        for _, rows in self.by_stream:
            result[rows[1:]] = values[rows[:-1]]
        return result

    @cached_property
    def latest(self) -> Ints:
        """For each work the latest end on its stream up to it."""
        result = np.empty_like(self.end)
        for _, rows in self.by_stream:
            result[rows] = np.maximum.accumulate(self.end[rows])
        return result

    @cached_property
    def of_device(self) -> dict[int, list[tuple[int, list[int], list[int]]]]:
        """For each device its streams: number, rows, and latest ends up to each."""
        found: dict[int, list[tuple[int, list[int], list[int]]]] = {}
        for key, rows in self.by_stream:
            one = key, rows.tolist(), self.latest[rows].tolist()
            found.setdefault(int(self.device[rows[0]]), []).append(one)
        return found


def streams_of(
    trace: Trace, joined: Launches, event_of_call: Ints, orphan: Ints, begin: Ints
) -> Streams:
    """Streams of a trace. ``orphan``: the work of an event; ``begin``: of the launching call."""
    table = trace.work
    event = np.where(joined.call_of_work >= 0, event_of_call[joined.call_of_work], -1)
    event[orphan[orphan >= 0]] = np.flatnonzero(orphan >= 0)
    rows = np.flatnonzero((event >= 0) | (begin <= begin[event >= 0].max(initial=LONG_AGO)))
    rows = rows[np.lexsort((table.start[rows], begin[rows]))]
    launched = joined.call_of_work[rows]
    _, stream = np.unique(
        table.device[rows].astype(np.int64) * (1 << 40) + table.stream[rows], return_inverse=True
    )
    queue = _Queue(
        begin=begin[rows],
        held=np.where(launched >= 0, trace.calls.end[launched] - begin[rows], 0),
        event=event[rows],
        stream=stream,
        start=table.start[rows],
        end=table.end[rows],
        device=table.device[rows],
        told=np.sort(trace.calls.start[mask(trace.names, trace.calls.name, _tells)]),
    )
    rigid = _rigid(queue.event)
    lag, distance, depends = _delays(queue, rigid)
    return Streams(
        work=rows,
        event=queue.event,
        stream=stream,
        start=queue.start,
        end=queue.end,
        lag=lag.tolist(),
        distance=distance.tolist(),
        depends=depends,
        rigid=rigid.tolist(),
        simple=((launched >= 0) & (rigid < 0)).tolist(),
    )


def _tells(call: str) -> bool:
    return plain(call) in STREAM_WAITS or plain(call) in GRAPH_LAUNCHES


def _rigid(event: Ints) -> Ints:
    """The first row of its call for each later row: a graph's work keeps order and distances."""
    again = np.zeros(len(event), np.bool_)
    again[1:] = (event[1:] == event[:-1]) & (event[1:] >= 0)
    first = np.maximum.accumulate(np.where(again, 0, np.arange(len(event))))
    return np.where(again, first, -1)


def _after(queue: _Queue, row: int, told: bool) -> list[int]:
    """Work of other streams that this one came after: where the host ``told`` a stream to wait; or
    where it began right after that work's end and neither its own launch nor its stream explains
    why only then.

    A trace seldom says which event a stream waited for. So each other stream of the device is taken
    to hold the work back with the last of its work that was queued before and had ended when it
    began: that holds in the recording, and where it was not meant a price is too low rather than
    too high.
    """
    start, own = int(queue.start[row]), int(queue.stream[row])
    found = []
    for key, rows, ends in queue.of_device[int(queue.device[row])]:
        place = min(bisect_left(rows, row), bisect_right(ends, start)) - 1
        if key != own and place >= 0:
            other = rows[place]
            if told or start - int(queue.end[other]) <= SOON_NS:
                found.append(other)
    return found


Depends = tuple[tuple[tuple[int, int], ...], ...]


def _delays(queue: _Queue, rigid: Ints) -> tuple[Ints, Ints, Depends]:
    """``lag``, ``distance`` and ``depends`` of :class:`Streams`; delays beyond :data:`LONGEST_NS` are cut.

    What held each work back is what came last before its begin; its delay is that of this work.
    Of everything else the usual delay is taken, or less where the recording shows less.
    """
    start, begin, reach = queue.start, queue.begin, queue.before(queue.latest)
    known = (queue.event >= 0) & (rigid < 0)
    late = start - np.maximum(begin, reach) > LONGEST_NS
    since = queue.before(begin)
    low, high = (np.searchsorted(queue.told, when, side="right") for when in (since, begin))
    told: Flags = low < high
    others: list[list[int]] = [[]] * len(start)
    other = np.full(len(start), LONG_AGO)
    for row in np.flatnonzero(known & (told | late)).tolist():
        others[row] = found = _after(queue, row, told=bool(told[row]))
        other[row] = max((int(queue.end[each]) for each in found), default=LONG_AGO)
    bound = np.maximum(np.maximum(begin, reach), other)
    by_launch, by_stream = bound == begin, bound == reach
    delay = start - bound
    taken = np.minimum(delay, LONGEST_NS + np.where(by_launch, queue.held, 0))
    lag = _usual(taken, by_launch, start - begin)
    distance = _usual(taken, by_stream, start - reach)
    usual = _middle(taken[~by_launch & ~by_stream])
    depends = tuple(
        tuple(
            (
                each,
                int(taken[row])
                if queue.end[each] == bound[row]
                else min(usual, int(start[row] - queue.end[each])),
            )
            for each in found
        )
        if found
        else ()
        for row, found in enumerate(others)
    )
    return lag, distance, depends


def _usual(taken: Ints, binding: Ints, slack: Ints) -> Ints:
    return np.where(binding, taken, np.minimum(_middle(taken[binding]), slack))


def _middle(values: Ints) -> int:
    return int(np.median(values)) if len(values) else 0
