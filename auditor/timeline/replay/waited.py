"""What each wait of the host waited for: which work had to end before it returned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from auditor.timeline.device import Launches, join
from auditor.timeline.intervals import groups
from auditor.timeline.naming import DEVICE_WIDE, plain
from auditor.timeline.replay.streams import LONGEST_NS, Streams
from auditor.timeline.trace import Ints, Trace
from auditor.timeline.waits import Waits

TICK_NS = 2_000
"""Host and device times of one moment differ by this much: clocks are joined to about 1 us, and
old traces count in whole microseconds."""

EVENTS = frozenset({"cudaEventSynchronize", "cuEventSynchronize", "hipEventSynchronize"})


@dataclass(frozen=True)
class Waited:
    """For each event of a schedule."""

    rows: tuple[tuple[int, ...], ...]
    """Rows of :class:`Streams` that must have ended before the call returns."""
    late: Ints
    """From the last of those ends to the call's return; below 0 where a call returns before its
    copy is done (the last piece is staged).
    """
    own: Ints
    """What the call takes by itself; -1 for events that are no waits."""


def waited_for(
    trace: Trace, waits: Waits, joined: Launches, call: Ints, streams: Streams
) -> Waited:
    """What the events of a schedule waited for. ``call`` is its column."""
    size = len(call)
    rows: list[tuple[int, ...]] = [()] * size
    late, own = np.zeros(size, np.int64), np.full(size, -1)
    event_of_call = np.full(len(trace.calls.start), -1)
    event_of_call[call[call >= 0]] = np.flatnonzero(call >= 0)
    finder = _Finder(trace, waits, joined, streams)
    ends, starts = trace.calls.end, trace.calls.start
    held: list[tuple[int, int, int]] = []
    free: list[int] = []
    for wait, one in enumerate(waits.call.tolist()):
        event = int(event_of_call[one])
        if event < 0:
            continue
        rows[event] = found = finder.of(wait, one)
        length = int(ends[one] - starts[one])
        last = max((int(streams.end[row]) for row in found), default=int(starts[one]))
        own[event] = length
        late[event] = int(ends[one]) - last
        if last > starts[one]:
            held.append((event, length, last))
        else:
            free.append(length)
    usual = int(np.median(free)) if free else 0
    after = int(np.median([late[event] for event, _, _ in held])) if held else 0
    bound = {event for event, _, _ in held}
    for event, length, _ in held:
        own[event] = min(length, usual)
        late[event] = min(int(late[event]), LONGEST_NS)
    for event in np.flatnonzero(own >= 0).tolist():
        if event not in bound:
            late[event] = min(int(late[event]), max(after, 0))
    return Waited(tuple(rows), late, own)


class _Finder:
    """Finds the work that a call waited for."""

    def __init__(self, trace: Trace, waits: Waits, joined: Launches, streams: Streams) -> None:
        self.trace, self.waits, self.joined, self.streams = trace, waits, joined, streams
        self.row_of_work = np.full(len(trace.work.start), -1)
        self.row_of_work[streams.work] = np.arange(len(streams.work))
        self.by_stream = groups(streams.stream)
        self.rows_of = dict(self.by_stream)
        self.queued = {key: self._queued_at(rows) for key, rows in self.by_stream}
        self.reach = {key: np.maximum.accumulate(streams.end[rows]) for key, rows in self.by_stream}
        self.number = self._numbers()
        said = join(trace.calls.correlation, trace.syncs.correlation)
        self.said = (
            np.where(said >= 0, trace.syncs.stream[said], -1)
            if len(trace.syncs.stream)
            else np.full(len(said), -1)
        )
        self.last_copy: dict[int, int] = {}

    def _queued_at(self, rows: Ints) -> Ints:
        """When the work of one stream was queued."""
        work = self.streams.work[rows]
        call = self.joined.call_of_work[work]
        return np.where(call >= 0, self.trace.calls.start[call], self.streams.start[rows])

    def _numbers(self) -> dict[int, list[int]]:
        """Streams by the number that the trace gives them (each device has its own)."""
        result: dict[int, list[int]] = {}
        for key, rows in self.by_stream:
            number = int(self.trace.work.stream[self.streams.work[rows[0]]])
            result.setdefault(number, []).append(key)
        return result

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
        return [key for key, _ in self.by_stream]

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
