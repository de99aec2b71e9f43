"""A trace as what a replay needs: what each host thread did in which order, what it launched, and
what it waited for.

Times are int64 nanoseconds on the trace's clock, as everywhere in :mod:`auditor.timeline`. What a
replay does not change is kept as it was recorded: the length of all device work (collectives with
their waiting for other ranks), the host's time between calls, and calls that only take time
(cudaMalloc, cudaFree, a first launch that loads its module).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

import numpy as np

from auditor.timeline.device import Launches
from auditor.timeline.naming import is_launch, mask
from auditor.timeline.replay.streams import Streams, streams_of
from auditor.timeline.replay.waited import Waited, waited_for
from auditor.timeline.steps import Steps
from auditor.timeline.trace import Ints, Trace
from auditor.timeline.tree import CallTree
from auditor.timeline.waits import Waits

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
class Sources:
    """The tables of a timeline from which a schedule is made."""

    trace: Trace
    tree: CallTree
    launches: Launches
    waits: Waits
    steps: Steps
    others: Ints
    """Further calls (rows of :class:`Calls`) that edits may be about: those that hold the host."""
    step_thread: int


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
    orphan: Ints
    """Row of :class:`Work` that no call launched, else -1."""
    boundary: Ints
    """Number of the boundary (two a step: its begin and its end), else -1."""
    thread: Ints
    own: Ints
    """Time that the call takes by itself: without what it waited for, or a full queue."""
    before: Ints
    """The event of the same thread that ended last before this one began, -1 without."""
    after: Ints
    """The event, of any thread, after which this one begins, -1 for the first ones."""
    gap: Ints
    """The host's time between that event's end and this one's start."""
    waited: Waited
    streams: Streams
    window: tuple[int, int]
    """Begin of the first step and end of the last one."""
    steps: int
    limit: int
    """Launches that a stream holds."""
    unlaunched: float
    """Share of the device's time inside the window whose launch the trace does not show."""

    @property
    def count(self) -> int:
        """Number of events."""
        return len(self.start)

    @cached_property
    def lists(self) -> Lists:
        """What no edit changes, as lists."""
        streams = self.streams
        event = streams.event.tolist()
        queued: list[list[int]] = [[] for _ in range(self.count)]
        for row, one in enumerate(event):
            if one >= 0:
                queued[one].append(row)
        lost = (self.orphan[streams.event] >= 0) & (streams.event >= 0)
        full = np.where(lost, -1, streams.places_before(self.limit))
        marks = np.flatnonzero(self.boundary >= 0)
        return Lists(
            before=np.where(self.before < 0, NO_EVENT, self.before).tolist(),
            after=self.after.tolist(),
            queued=queued,
            waited=self.waited.rows,
            late=self.waited.late.tolist(),
            boundaries=marks[np.argsort(self.boundary[marks], kind="stable")].tolist(),
            start=streams.start.tolist(),
            end=streams.end.tolist(),
            stream=streams.stream.tolist(),
            streams=int(streams.stream.max(initial=-1)) + 1,
            lag=streams.lag.tolist(),
            simple=(~lost & (streams.rigid < 0)).tolist(),
            full=full.tolist(),
            distance=streams.distance.tolist(),
            rigid=streams.rigid.tolist(),
            depends=streams.depends,
            inside=[row for row, one in enumerate(event) if one >= 0],
            outside=[row for row, one in enumerate(event) if one < 0],
        )


@dataclass(frozen=True)
class Lists:
    """A :class:`Schedule` as lists, by event and (from ``start`` on) by row of :class:`Streams`:
    a replay goes through them one by one, and lists are faster at that than arrays.
    """

    before: list[int]
    """:data:`NO_EVENT` where there is none."""
    after: list[int]
    """-1 where there is none."""
    queued: list[list[int]]
    """Rows of :class:`Streams` that each event queues."""
    waited: tuple[tuple[int, ...], ...]
    late: list[int]
    boundaries: list[int]
    """Events that are boundaries, in the order of their numbers."""
    start: list[int]
    end: list[int]
    stream: list[int]
    streams: int
    lag: list[int]
    simple: list[bool]
    """Work that begins by its launch: the trace shows one, and it is no further work of a graph."""
    full: list[int]
    """The row whose begin makes room in the stream's queue for this one; -1 where there is room,
    or no launch that waits for it.
    """
    distance: list[int]
    rigid: list[int]
    depends: tuple[tuple[tuple[int, int], ...], ...]
    inside: list[int]
    """Rows that were queued inside the window."""
    outside: list[int]
    """Rows that were queued before it."""


def schedule(sources: Sources) -> Schedule | None:
    """The schedule of a trace's steps (of all of it, where it marks none); None without work of a
    device that a call launched.
    """
    trace, joined, steps = sources.trace, sources.launches, sources.steps
    calls, work = trace.calls, trace.work
    window = int(steps.start.min()), int(steps.end.max())
    wanted = joined.work_of_call >= 0
    wanted[sources.waits.call] = True
    wanted[sources.others] = True
    wanted &= (calls.start >= window[0]) & (calls.start < window[1])
    rows = np.flatnonzero(wanted)
    known = joined.call_of_work >= 0
    if not known.any() or not len(rows):
        return None
    begin = np.where(known, calls.start[joined.call_of_work], work.start)
    inside = (begin >= window[0]) & (begin < window[1])
    orphans = np.flatnonzero(inside & ~known)
    events = _events(sources, rows, orphans)
    order = np.lexsort((events[2] != NO_CALL, events[0]))
    start, end, call, orphan, boundary, thread = (column[order] for column in events)
    before, after, gap = host_links(start, end, thread, _busy_since(sources, call, start))
    streams = streams_of(trace, joined, call, orphan, begin)
    waited = waited_for(trace, sources.waits, joined, call, streams)
    own, limit = _own(sources, call, start, end, streams)
    own = np.where(waited.own >= 0, waited.own, own)
    length = work.end - work.start
    total = int(length[inside].sum())
    return Schedule(
        start=start,
        end=end,
        call=call,
        orphan=orphan,
        boundary=boundary,
        thread=thread,
        own=own,
        before=before,
        after=after,
        gap=gap,
        waited=waited,
        streams=streams,
        window=window,
        steps=steps.count,
        limit=limit,
        unlaunched=int(length[orphans].sum()) / total if total else 0.0,
    )


def _events(sources: Sources, rows: Ints, orphans: Ints) -> tuple[Ints, ...]:
    """Columns ``start``, ``end``, ``call``, ``orphan``, ``boundary`` and ``thread``, not yet in
    order.
    """
    calls, work, steps = sources.trace.calls, sources.trace.work, sources.steps
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
            (calls.thread[rows], nobody - 1, np.full(len(marks), sources.step_thread))
        ).astype(np.int64),
    )


def _busy_since(sources: Sources, call: Ints, start: Ints) -> Ints:
    """For each event the begin of the outermost operator around it: since then its thread was busy
    by itself. The event's own start where there is none.
    """
    tree, spans = sources.tree, sources.trace.operators
    operator = np.zeros(len(tree.name), np.bool_)
    operator[: tree.operators] = ~spans.annotation
    result = start.copy()
    known = np.flatnonzero(call >= 0)
    top = tree.outermost(call[known] + tree.operators, operator)
    found = top >= 0
    result[known[found]] = spans.start[top[found]]
    return result


def _own(
    sources: Sources, call: Ints, start: Ints, end: Ints, streams: Streams
) -> tuple[Ints, int]:
    """What each call takes by itself, and how many launches a stream holds."""
    own, trace = end - start, sources.trace
    depth = streams.depth(start)
    launching = np.zeros(len(call), np.bool_)
    launching[call >= 0] = mask(trace.names, trace.calls.name[call[call >= 0]], is_launch)
    held = launching & (depth >= QUEUE - 1) & (own >= SLOW_LAUNCH_NS)
    free = launching & ~held
    if held.any():
        usual = int(np.median(own[free])) if free.any() else 0
        own = np.where(held, np.minimum(own, usual), own)
    return own, max(QUEUE, int(depth.max(initial=0)))


# -- links -----------------------------------------------------------------------------------------
# What each event of the host follows: the one before it on its thread, or one of another thread
# that handed over (a backward pass runs on a thread of its own while the loop's thread waits).


def host_links(start: Ints, end: Ints, thread: Ints, since: Ints) -> tuple[Ints, Ints, Ints]:
    """(event before on the same thread, event that it follows, time between that one's end and its
    start) for events in order of their start; -1 without one, and then the time counts from the
    first event's start.

    An event follows the one of its thread that ended last, unless another thread's ended after that
    one and before its own thread was busy again (``since`` is the begin of the outermost operator
    around each event): nothing else tells in a trace that one thread went on when another was done.
    """
    before, after = np.full(len(start), -1), np.full(len(start), -1)
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
        before[row] = follows = last_of.get(threads[row], -1)
        place = bisect_right(over_at, busy) - 1
        if place >= 0 and (follows < 0 or ends[follows] < over_at[place]):
            follows = over[place]
        after[row] = follows
        heappush(running, (ends[row], row))
    first = int(start[0]) if len(start) else 0
    gap = start - np.where(after >= 0, end[after], first) if len(start) else start
    return before, after, gap
