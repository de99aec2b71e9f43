"""Work of devices by stream: in which order it was queued, what it had to come after, and how long
after that it began.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from auditor.timeline.device import Launches
from auditor.timeline.intervals import groups
from auditor.timeline.naming import GRAPH_LAUNCHES, mask, plain
from auditor.timeline.trace import Codes, Flags, Ints, Trace

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
    """Work in the order in which the host queued it. Columns of one length, one row a work, but for
    those that say otherwise.
    """

    work: Ints
    """Row of :class:`Work`."""
    event: Ints
    """The event of the schedule that queued it; -1 for work queued before the window."""
    stream: Ints
    """Number of device and stream together, from 0."""
    start: Ints
    end: Ints
    lag: Ints
    """From the begin of the launching call to the work's begin, where nothing else held it."""
    distance: Ints
    """From the end of the work before it on its stream, where that held it."""
    depends: tuple[tuple[tuple[int, int], ...], ...]
    """For each the (row, distance) of work on other streams whose end it came after."""
    rigid: Ints
    """The row from whose begin it keeps its recorded distance (another of the same graph launch),
    else -1.
    """
    lost_ns: int
    """Sum of the delays beyond :data:`LONGEST_NS`, which are left out."""

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
    """How long that call took: until its end the work may still be on the way (a pageable copy is
    staged, a module is loaded)."""
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

    @cached_property
    def previous(self) -> Ints:
        """For each work the one before it on its stream, -1 for the first."""
        result = np.full(len(self.start), -1)
        for _, rows in self.by_stream:
            result[rows[1:]] = rows[:-1]
        return result

    @cached_property
    def ends(self) -> dict[int, Ints]:
        return {key: np.maximum.accumulate(self.end[rows]) for key, rows in self.by_stream}

    @cached_property
    def of_device(self) -> dict[int, list[tuple[int, list[int], list[int]]]]:
        """For each device its streams: number, rows, and latest ends up to each."""
        found: dict[int, list[tuple[int, list[int], list[int]]]] = {}
        for key, rows in self.by_stream:
            one = key, rows.tolist(), self.ends[key].tolist()
            found.setdefault(int(self.device[rows[0]]), []).append(one)
        return found

    @cached_property
    def reach(self) -> Ints:
        """For each work the latest end of those before it on its stream."""
        result = np.full(len(self.start), LONG_AGO)
        for key, rows in self.by_stream:
            result[rows[1:]] = self.ends[key][:-1]
        return result


def streams_of(trace: Trace, joined: Launches, call: Ints, orphan: Ints, begin: Ints) -> Streams:
    """Streams of a trace. ``call`` and ``orphan`` are columns of the schedule, ``begin`` for each
    work the begin of its launching call.
    """
    table = trace.work
    event_of_call = np.full(len(trace.calls.start), -1)
    event_of_call[call[call >= 0]] = np.flatnonzero(call >= 0)
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
    lag, distance, depends, lost = _delays(queue, rigid)
    return Streams(
        rows, queue.event, stream, queue.start, queue.end, lag, distance, depends, rigid, lost
    )


def _tells(call: str) -> bool:
    return plain(call) in STREAM_WAITS or plain(call) in GRAPH_LAUNCHES


def _rigid(event: Ints) -> Ints:
    """The first row of its call for each later row: a graph's work keeps order and distances."""
    result = np.full(len(event), -1)
    again = np.flatnonzero((event[1:] == event[:-1]) & (event[1:] >= 0)) + 1
    for row in again.tolist():
        result[row] = result[row - 1] if result[row - 1] >= 0 else row - 1
    return result


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


def _delays(queue: _Queue, rigid: Ints) -> tuple[Ints, Ints, Depends, int]:
    """``lag``, ``distance``, ``depends`` and ``lost_ns`` of :class:`Streams`.

    What held each work back is what came last before its begin; its delay is that of this work.
    Of everything else the usual delay is taken, or less where the recording shows less.
    """
    start, begin, reach = queue.start, queue.begin, queue.reach
    known = (queue.event >= 0) & (rigid < 0)
    late = start - np.maximum(begin, reach) > LONGEST_NS
    before = queue.previous
    since = np.where(before >= 0, queue.begin[before], LONG_AGO)
    low, high = (np.searchsorted(queue.told, when, side="right") for when in (since, queue.begin))
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
    return lag, distance, depends, int((delay - taken)[known].sum())


def _usual(taken: Ints, binding: Ints, slack: Ints) -> Ints:
    result: Ints = np.where(binding, taken, np.minimum(_middle(taken[binding]), slack))
    return result


def _middle(values: Ints) -> int:
    return int(np.median(values)) if len(values) else 0
