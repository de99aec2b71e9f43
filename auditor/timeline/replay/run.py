"""A schedule played again: the host's threads call, launch and wait, the streams work off what was
queued.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from auditor.timeline.replay.schedule import Lists, Schedule
from auditor.timeline.trace import Flags, Ints

NEVER = -(1 << 62)
"""Before every time of a trace."""


@dataclass(frozen=True)
class Edits:
    """What a replay changes of a schedule."""

    own: Ints
    """What each call takes by itself."""
    gap: Ints
    """The host's time before each event."""
    length: Ints
    """Length of each work (row of :class:`Streams`)."""
    waits: Flags
    """Events that still wait."""

    @classmethod
    def none(cls, plan: Schedule) -> Edits:
        """Everything as it was recorded."""
        return cls(
            plan.own.copy(),
            plan.gap.copy(),
            plan.streams.end - plan.streams.start,
            np.ones(plan.count, np.bool_),
        )


@dataclass(frozen=True)
class Replayed:
    """When everything happened. Times in ns on the trace's clock."""

    begin: Sequence[int]
    """Begin of each event of the schedule."""
    end: Sequence[int]
    work_start: Sequence[int]
    """Begin of each row of :class:`Streams`."""
    work_end: Sequence[int]
    boundaries: Sequence[int]
    """Begin and end of each step, one after the other."""
    done: int
    """When the last work that was queued inside the steps had ended."""

    @property
    def whole_ns(self) -> int:
        """From the begin of the first step until the host has done the last one and the devices
        what it queued.
        """
        return max(*self.boundaries, self.done) - self.boundaries[0]


def recorded(plan: Schedule) -> Replayed:
    """The same of the recording itself."""
    inside = plan.streams.event >= 0
    return Replayed(
        plan.start.tolist(),
        plan.end.tolist(),
        plan.streams.start.tolist(),
        plan.streams.end.tolist(),
        plan.start[plan.lists.boundaries].tolist(),
        int(plan.streams.end[inside].max(initial=plan.start[0])),
    )


def replay(plan: Schedule, edits: Edits | None = None) -> Replayed:
    """The schedule played with these edits."""
    edits = edits or Edits.none(plan)
    lists, devices = plan.lists, _Devices(plan, edits)
    first = int(plan.start[0])
    own, gap, waiting = edits.own.tolist(), edits.gap.tolist(), edits.waits.tolist()
    begins, ends = [0] * plan.count, [0] * plan.count
    for event, (follows, previous) in enumerate(zip(lists.after, lists.before, strict=True)):
        begin = (ends[follows] if follows >= 0 else first) + gap[event]
        if previous >= 0 and previous != follows and ends[previous] > begin:
            begin = ends[previous]
        end = begin + own[event]
        for row in lists.queued[event]:
            end = max(end, devices.queue(row, begin))
        if waiting[event] and lists.waited[event]:
            until = max(devices.end[row] for row in lists.waited[event])
            end = max(end, until + lists.late[event])
        begins[event], ends[event] = begin, end
    return Replayed(
        begins,
        ends,
        devices.start,
        devices.end,
        [ends[event] for event in lists.boundaries],
        max((devices.end[row] for row in lists.inside), default=first),
    )


class _Devices:
    """The streams of all devices. Lists, not arrays: each work depends on the one before it."""

    def __init__(self, plan: Schedule, edits: Edits) -> None:
        self.lists: Lists = plan.lists
        self.limit = plan.limit
        self.length = edits.length.tolist()
        self.start, self.end = list(self.lists.start), list(self.lists.end)
        self.free: list[int] = [NEVER] * self.lists.streams
        self.begun: list[list[int]] = [[] for _ in range(self.lists.streams)]
        for row in self.lists.outside:
            stream = self.lists.stream[row]
            self.free[stream] = max(self.free[stream], self.end[row])
            self.begun[stream].append(self.start[row])

    def queue(self, row: int, at: int) -> int:
        """The host queues one work at a moment; when its launch finds room in the queue.

        Work without a launch comes after the work before it on its stream, as in the recording.
        """
        lists = self.lists
        stream, first, lag = lists.stream[row], lists.rigid[row], lists.lag[row]
        free, begun = self.free[stream], self.begun[stream]
        if first >= 0:
            start = self.start[first] + lists.start[row] - lists.start[first]
        elif lag is None:
            start = lists.start[row] if free == NEVER else NEVER
        else:
            start = at + lag
        for other, distance in lists.depends[row]:
            start = max(start, self.end[other] + distance)
        start = max(start, free + lists.distance[row])
        self.start[row] = start
        self.end[row] = end = start + self.length[row]
        self.free[stream] = max(free, end)
        begun.append(start)
        return begun[-1 - self.limit] if len(begun) > self.limit and lag is not None else NEVER
