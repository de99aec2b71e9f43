"""A trace without some of its waits, copies or other costs: what its steps would take, by a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from auditor.model.what_if import Change
from auditor.timeline.device import OVERHEAD_NS
from auditor.timeline.intervals import Intervals, is_communication, mask, union, without
from auditor.timeline.phases import loading
from auditor.timeline.schedule import Schedule, schedule
from auditor.timeline.trace import Flags, Ints
from auditor.timeline.waits import LONG_GAP_NS

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline

LARGEST_ERROR = 0.1
"""Share of a recording's, and a step's, length by which its own replay may be off."""

LARGEST_UNLAUNCHED = 0.1
"""Share of the device's time whose launch is unknown, likewise: nothing tells its begin."""


class Replays:
    """Replays of one schedule. Gains are ns of all its steps and the devices' work after them."""

    def __init__(self, plan: Schedule, line: Timeline) -> None:
        self.plan, self.line = plan, line
        self._wholes: dict[frozenset[Change], int] = {}

    @cached_property
    def recorded_ns(self) -> int:
        """Length of the window as it was recorded."""
        return recorded(self.plan).whole_ns

    @cached_property
    def unchanged(self) -> ReplayedTimes:
        """The replay with nothing left out."""
        return replay(self.plan)

    @cached_property
    def error(self) -> float:
        """By how much the unchanged replay is longer than the recording, as a share of it."""
        return self.unchanged.whole_ns / self.recorded_ns - 1 if self.recorded_ns else 0.0

    @cached_property
    def step_errors(self) -> list[float]:
        """The error of each step alone, from boundary to boundary on the host."""
        said, seen = self.unchanged.boundaries, recorded(self.plan).boundaries
        return [
            (said[place + 1] - said[place]) / max(1, seen[place + 1] - seen[place]) - 1
            for place in range(0, len(seen), 2)
        ]

    @cached_property
    def reason(self) -> str:
        """Why no what-if is given; empty if the replay is trusted."""
        if self.plan.unlaunched > LARGEST_UNLAUNCHED:
            return (
                f"the trace does not show the launches of {self.plan.unlaunched:.0%} of the "
                "device's work"
            )
        step = float(np.median(self.step_errors))
        off, what = max((self.error, "the steps"), (step, "a typical step"), key=_size)
        if _size((off, what)) <= LARGEST_ERROR:
            return ""
        word = "shorter" if off < 0 else "longer"
        return f"replayed with nothing changed, {what} would be {abs(off):.0%} {word} than recorded"

    def gain(self, changes: Iterable[Change]) -> int:
        """What comes back without all of these, in ns of the window; never below 0."""
        return max(0, self.unchanged.whole_ns - self._total_ns(frozenset(changes)))

    def _total_ns(self, changes: frozenset[Change]) -> int:
        if changes not in self._wholes:
            self._wholes[changes] = replay(self.plan, self.edits(changes)).whole_ns
        return self._wholes[changes]

    def edits(self, changes: Iterable[Change]) -> Edits:
        """All of these left out, in whatever order: what two of them take is taken once."""
        edits, plan, line = Edits.none(self.plan), self.plan, self.line
        slow, hidden = (np.zeros(len(line.trace.work.start), np.int64) for _ in range(2))
        for change in changes:
            match change.kind:
                case "waits":
                    self._without_waits(edits, slow, np.array(change.rows, np.int64))
                case "calls":
                    edits.own[np.isin(plan.call, change.rows)] = 0
                case "copies to device":
                    self._hide(hidden, line.copies.to_device)
                case "copies to host":
                    self._hide(hidden, line.copies.to_host)
                case "collectives":
                    work = line.trace.work
                    mine = mask(line.trace.names, work.name, is_communication)
                    hidden[mine] = (work.end - work.start)[mine]
                case "loader":
                    mine = plan.thread == line.main_thread
                    self._without_host_time(edits, loading(line, line.main_thread), mine)
                case "host gaps":
                    self._without_host_time(edits, self._host_gaps, plan.thread >= 0)
                case "optimizer launches":
                    self._merge(edits, self._optimizer.holds(plan.start))
                case "other launches":
                    self._merge(edits, ~self._optimizer.holds(plan.start))
                case "launches":
                    self._merge(edits, np.ones(plan.count, np.bool_))
        shorter = (slow + hidden)[plan.streams.work]
        edits.length[:] = np.maximum(edits.length - shorter, 0)
        edits.gap[:] = np.maximum(edits.gap, np.minimum(plan.gap, 0))
        return edits

    def _without_waits(self, edits: Edits, slow: Ints, rows: Ints) -> None:
        """The host goes on at once: a synchronisation is not called at all, a copy is asynchronous,
        and where it is pageable its bytes run at the rate of pinned memory.
        """
        calls, made = self.line.waits.call[rows], self.line.copies
        edits.waits[np.isin(self.plan.call, calls)] = False
        mine = np.isin(made.call, calls)
        edits.own[np.isin(self.plan.call, np.setdiff1d(calls, made.call[mine]))] = 0
        slow[made.work[mine]] = self._slow[mine]

    def _hide(self, hidden: Ints, copies: Flags) -> None:
        made = self.line.copies
        hidden[made.work[copies]] = (made.ns - self._slow)[copies]

    @cached_property
    def _slow(self) -> Ints:
        """What each pageable copy took longer than pinned memory would, in ns, hidden or not."""
        made, lost = self.line.copies, self.line.pageable
        rate = np.where(made.to_host, lost.to_host.gbs, lost.to_device.gbs)
        needed = np.minimum(OVERHEAD_NS + made.bytes / rate, made.ns)
        known = made.pageable & (made.bytes > 0) & (made.to_host | made.to_device)
        return np.where(known, made.ns - needed, 0).astype(np.int64)

    @property
    def _host_gaps(self) -> Intervals:
        """Long idle times of the device that the host's own work made, not its loader."""
        assert self.line.idle is not None
        gaps = self.line.idle.of_host()
        begin, dry = self.line.idle.start[gaps], self.line.idle.dry[gaps]
        return without(union(begin, begin + dry), loading(self.line, self.line.main_thread))

    @cached_property
    def _optimizer(self) -> Intervals:
        """Time inside ``Optimizer.step``."""
        spans, use = self.line.trace.operators, self.line.optimizer
        rows = use.rows if use is not None else np.empty(0, np.int64)
        return union(spans.start[rows], spans.end[rows])

    def _without_host_time(self, edits: Edits, spans: Intervals, events: Flags) -> None:
        plan = self.plan
        inside = spans.covered(plan.start - plan.gap, plan.start)
        edits.gap[events] -= inside[events]

    def _merge(self, edits: Edits, events: Flags) -> None:
        """Launches as if one call made all; what the host does for :data:`LONG_GAP_NS` stays."""
        plan = self.plan
        mine = plan.launching & events
        paced = mine & (plan.gap > 0) & (plan.gap < LONG_GAP_NS)
        edits.gap[paced] -= plan.gap[paced]
        edits.own[mine & (plan.own < LONG_GAP_NS)] = 0


def replays(line: Timeline) -> Replays | None:
    """Replays of the steps (of the whole trace, where it marks none); None without work of a device
    that a call launched, or with work that has no length.
    """
    plan = schedule(line) if line.devices and not line.trace.info.null_device else None
    return Replays(plan, line) if plan is not None else None


def _size(said: tuple[float, str]) -> float:
    return abs(said[0])


# -- run -------------------------------------------------------------------------------------------
# A schedule played again: the host's threads call, launch and wait, the streams work off what was
# queued.


NEVER = -(1 << 62)
"""Before every time of a trace."""


@dataclass(frozen=True)
class Edits:
    """What a replay changes of a schedule."""

    own: Ints
    """What each call takes alone."""
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
class ReplayedTimes:
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
        """From the first step's begin until host and devices are done with the last one."""
        return max(*self.boundaries, self.done) - self.boundaries[0]


def recorded(plan: Schedule) -> ReplayedTimes:
    """The recording in the form of a replay."""
    inside = plan.streams.event >= 0
    return ReplayedTimes(
        plan.start.tolist(),
        plan.end.tolist(),
        plan.streams.start.tolist(),
        plan.streams.end.tolist(),
        plan.start[plan.boundaries].tolist(),
        int(plan.streams.end[inside].max(initial=plan.start[0])),
    )


def replay(plan: Schedule, edits: Edits | None = None) -> ReplayedTimes:
    """The schedule played with these edits."""
    edits = edits or Edits.none(plan)
    queue, work_start, work_end = _devices(plan, edits.length.tolist())
    first, begins = int(plan.start[0]), [0] * plan.count
    ends = [0] * plan.count + [NEVER, first]  # two for events that follow none
    waited = edits.waits.tolist()
    events = zip(plan.after, plan.before, edits.gap.tolist(), edits.own.tolist(), strict=True)
    for event, (follows, previous, gap, own) in enumerate(events):
        begin = max(ends[follows] + gap, ends[previous])
        end = begin + own
        for row in plan.queued[event]:
            end = max(end, queue(row, begin))
        if plan.waited[event] and waited[event]:
            until = max([work_end[row] for row in plan.waited[event]]) + plan.late[event]
            end = max(end, until)
        begins[event], ends[event] = begin, end
    return ReplayedTimes(
        begins,
        ends[: plan.count],
        work_start,
        work_end,
        [ends[event] for event in plan.boundaries],
        max((work_end[row] for rows in plan.queued for row in rows), default=first),
    )


def _devices(
    plan: Schedule, length: Sequence[int]
) -> tuple[Callable[[int, int], int], list[int], list[int]]:
    """(queue, start, end): ``queue(row, at)`` gives a work to its stream and says when its launch
    finds room in the queue. Lists, not arrays: each work depends on the one before it.
    """
    streams = plan.streams
    stream, recorded, ended = streams.lists
    start, end = recorded.copy(), ended.copy()
    free = [NEVER] * (int(streams.stream.max(initial=-1)) + 1)
    for row in np.flatnonzero(streams.event < 0).tolist():
        free[stream[row]] = max(free[stream[row]], end[row])
    lag, distance, depends, rigid = streams.lag, streams.distance, streams.depends, streams.rigid
    simple, full = streams.simple, plan.full

    def queue(row: int, at: int) -> int:
        place = stream[row]
        before = free[place]
        if simple[row]:
            begin = at + lag[row]
        elif (first := rigid[row]) >= 0:  # it keeps its distance from other work of its launch
            begin = start[first] + recorded[row] - recorded[first]
        else:  # without a launch it comes after the work before it, as in the recording
            begin = recorded[row] if before == NEVER else NEVER
        if depends[row]:
            begin = max(begin, *[end[other] + late for other, late in depends[row]])
        begin = max(begin, before + distance[row])
        start[row] = begin
        end[row] = done = begin + length[row]
        if done > before:
            free[place] = done
        return start[full[row]] if full[row] >= 0 else NEVER

    return queue, start, end
