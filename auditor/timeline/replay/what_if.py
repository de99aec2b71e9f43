"""A trace without some of its waits, copies or other costs: what its steps would take, by a replay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from auditor.model.what_if import Change
from auditor.timeline.copies import Copies
from auditor.timeline.idle import LONG_GAP_NS
from auditor.timeline.intervals import Intervals
from auditor.timeline.naming import is_communication, is_launch, mask
from auditor.timeline.pinned import OVERHEAD_NS, Pageable
from auditor.timeline.replay.run import Edits, Replayed, recorded, replay
from auditor.timeline.replay.schedule import Schedule
from auditor.timeline.trace import Flags, Ints, Trace
from auditor.timeline.waits import Waits

LARGEST_ERROR = 0.1
"""Share of a recording's length, and of a typical step's, by which its own replay may be off before
no what-if is given."""

LARGEST_UNLAUNCHED = 0.1
"""Share of the device's time whose launch the trace does not show, likewise: nothing tells when
such work would have begun."""


@dataclass(frozen=True)
class Costs:
    """Tables of a timeline that edits are about."""

    trace: Trace
    waits: Waits
    copies: Copies
    pageable: Pageable
    loading: Intervals
    """Time in which the loop waited for its loader."""
    host_gaps: Intervals
    """Long idle times of the device that the host's own work made."""
    optimizer: Intervals
    """Time inside ``Optimizer.step``."""
    thread: int
    """The thread that runs the steps."""


class Replays:
    """Replays of one schedule. Gains are ns of the whole window: the steps, and what the devices
    still did after them.
    """

    def __init__(self, plan: Schedule, costs: Costs) -> None:
        self.plan, self.costs = plan, costs
        self._wholes: dict[frozenset[Change], int] = {}

    @cached_property
    def recorded_ns(self) -> int:
        """Length of the window as it was recorded."""
        return recorded(self.plan).whole_ns

    @cached_property
    def unchanged(self) -> Replayed:
        """The replay with nothing left out."""
        return replay(self.plan)

    @cached_property
    def error(self) -> float:
        """By how much the unchanged replay is longer than the recording, as a share of it."""
        return self.unchanged.whole_ns / self.recorded_ns - 1 if self.recorded_ns else 0.0

    @cached_property
    def step_errors(self) -> list[float]:
        """The same of each step by itself, from boundary to boundary on the host."""
        said, seen = self.unchanged.boundaries, recorded(self.plan).boundaries
        return [
            (said[place + 1] - said[place]) / max(1, seen[place + 1] - seen[place]) - 1
            for place in range(0, len(seen), 2)
        ]

    @cached_property
    def reason(self) -> str:
        """Why no what-if is given; empty where the replay is trusted."""
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
        return max(0, self.unchanged.whole_ns - self._whole(frozenset(changes)))

    def _whole(self, changes: frozenset[Change]) -> int:
        if changes not in self._wholes:
            self._wholes[changes] = replay(self.plan, self.edits(changes)).whole_ns
        return self._wholes[changes]

    def edits(self, changes: Iterable[Change]) -> Edits:
        """All of these left out, in whatever order: what two of them take is taken once."""
        edits, plan, costs = Edits.none(self.plan), self.plan, self.costs
        slow, hidden = (np.zeros(len(costs.trace.work.start), np.int64) for _ in range(2))
        for change in changes:
            match change.kind:
                case "waits":
                    self._without_waits(edits, slow, np.array(change.rows, np.int64))
                case "calls":
                    edits.own[np.isin(plan.call, change.rows)] = 0
                case "copies to device":
                    self._hide(hidden, costs.copies.to_device)
                case "copies to host":
                    self._hide(hidden, costs.copies.to_host)
                case "collectives":
                    work = costs.trace.work
                    mine = mask(costs.trace.names, work.name, is_communication)
                    hidden[mine] = (work.end - work.start)[mine]
                case "loader":
                    self._without_host_time(edits, costs.loading, plan.thread == costs.thread)
                case "host gaps":
                    self._without_host_time(edits, costs.host_gaps, plan.thread >= 0)
                case "optimizer launches":
                    self._merge(edits, costs.optimizer.holds(plan.start))
                case "other launches":
                    self._merge(edits, ~costs.optimizer.holds(plan.start))
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
        calls, made = self.costs.waits.call[rows], self.costs.copies
        edits.waits[np.isin(self.plan.call, calls)] = False
        mine = np.isin(made.call, calls)
        edits.own[np.isin(self.plan.call, np.setdiff1d(calls, made.call[mine]))] = 0
        slow[made.work[mine]] = self._slow[mine]

    def _hide(self, hidden: Ints, copies: Flags) -> None:
        """These copies beside other work, on a side stream; what pinned memory saves of them is
        part of the price of their waits.
        """
        made = self.costs.copies
        hidden[made.work[copies]] = (made.ns - self._slow)[copies]

    @cached_property
    def _slow(self) -> Ints:
        """What each pageable copy took longer than pinned memory would have, in ns, hidden or
        not.
        """
        made, lost = self.costs.copies, self.costs.pageable
        rate = np.where(made.to_host, lost.to_host.gbs, lost.to_device.gbs)
        needed = np.minimum(OVERHEAD_NS + made.bytes / rate, made.ns)
        known = made.pageable & (made.bytes > 0) & (made.to_host | made.to_device)
        return np.where(known, made.ns - needed, 0).astype(np.int64)

    def _without_host_time(self, edits: Edits, spans: Intervals, events: Flags) -> None:
        """The host's time inside these spans gone, as far as no call of the runtime took it."""
        plan = self.plan
        inside = spans.covered(plan.start - plan.gap, plan.start)
        edits.gap[events] -= inside[events]

    def _merge(self, edits: Edits, events: Flags) -> None:
        """The host's pace from launch to launch gone, as if one call launched them all; what the
        host does for :data:`LONG_GAP_NS` or longer stays.
        """
        mine, plan = self._launching & events, self.plan
        paced = mine & (plan.gap > 0) & (plan.gap < LONG_GAP_NS)
        edits.gap[paced] -= plan.gap[paced]
        edits.own[mine & (plan.own < LONG_GAP_NS)] = 0

    @cached_property
    def _launching(self) -> Flags:
        """Events that launch a kernel."""
        call, trace = self.plan.call, self.costs.trace
        result = np.zeros(len(call), np.bool_)
        known = np.flatnonzero(call >= 0)
        result[known] = mask(trace.names, trace.calls.name[call[known]], is_launch)
        return result


def _size(said: tuple[float, str]) -> float:
    return abs(said[0])
