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
    begins = [0] * plan.count
    ends = [0] * plan.count + [NEVER, first]  # two for events that follow none
    waited = edits.waits.tolist()
    events = zip(lists.after, lists.before, edits.gap.tolist(), edits.own.tolist(), strict=True)
    for event, (follows, previous, gap, own) in enumerate(events):
        begin = ends[follows] + gap
        begin = max(begin, ends[previous])
        end = begin + own
        for row in lists.queued[event]:
            free = devices.queue(row, begin)
            end = max(end, free)
        if lists.waited[event] and waited[event]:
            until = max([devices.end[row] for row in lists.waited[event]]) + lists.late[event]
            end = max(end, until)
        begins[event], ends[event] = begin, end
    return Replayed(
        begins,
        ends[: plan.count],
        devices.start,
        devices.end,
        [ends[event] for event in lists.boundaries],
        max((devices.end[row] for row in lists.inside), default=first),
    )


class _Devices:
    """The streams of all devices. Lists, not arrays: each work depends on the one before it."""

    def __init__(self, plan: Schedule, edits: Edits) -> None:
        lists: Lists = plan.lists
        length = edits.length.tolist()
        start, end = list(lists.start), list(lists.end)
        free: list[int] = [NEVER] * lists.streams
        for row in lists.outside:
            free[lists.stream[row]] = max(free[lists.stream[row]], end[row])
        self.start, self.end = start, end
        stream, lag, distance, full = lists.stream, lists.lag, lists.distance, lists.full
        depends, simple = lists.depends, lists.simple

        def queue(row: int, at: int) -> int:
            place = stream[row]
            before = free[place]
            begin = at + lag[row] if simple[row] else _earliest(lists, row, at, start, before)
            if depends[row]:
                begin = max(begin, *[end[other] + late for other, late in depends[row]])
            begin = max(begin, before + distance[row])
            start[row] = begin
            end[row] = done = begin + length[row]
            if done > before:
                free[place] = done
            return start[full[row]] if full[row] >= 0 else NEVER

        self.queue = queue
        """The host queues one work (row) at a moment; when its launch finds room in the queue."""


def _earliest(lists: Lists, row: int, at: int, start: Sequence[int], free: int) -> int:
    """When work begins that has no launch, or keeps its distance from other work of its launch.
    Work without a launch comes after the work before it on its stream, as in the recording.
    """
    first = lists.rigid[row]
    if first >= 0:
        return start[first] + lists.start[row] - lists.start[first]
    return lists.start[row] if free == NEVER else NEVER
