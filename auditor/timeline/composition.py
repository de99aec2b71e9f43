"""What each step's time was spent on, on the trace's own clock: device work, copies to the device,
the loader, and nothing known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from auditor.timeline.idle import profilers_own
from auditor.timeline.intervals import Intervals, union
from auditor.timeline.phases import loading, that_count
from auditor.timeline.steps import Steps
from auditor.timeline.trace import Flags, Ints, Trace
from auditor.timeline.tree import CallTree

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline

STRETCH_NS = 1_000_000
"""Shorter gaps between events are Python's ordinary pace from one operator to the next (tens of
us), not a residual.
"""


@dataclass(frozen=True)
class Composition:
    """Time of each step in ns, one value a step. The parts overlap one another, but for those that
    say otherwise.
    """

    total: Ints
    busy: Ints
    """Any device worked."""
    to_device: Ints
    """A copy from the host to a device ran."""
    to_device_alone: Ints
    """The same while no other work ran on a device: what the copies cost."""
    to_device_slow: Ints
    """Of that the part that pinned memory would not have needed: the price of waits for copies of
    pageable memory.
    """
    to_host: Ints
    """A copy from a device to the host ran."""
    to_host_alone: Ints
    to_host_slow: Ints
    loader: Ints
    """The loop waited for its loader; 0 where no loader was recorded."""
    loader_alone: Ints
    """The same while no device worked."""
    unknown: Ints
    """Stretches of at least :data:`STRETCH_NS` in which nothing happened that the trace knows, on
    host or device.
    """
    longest_unknown: tuple[int, int]
    """Start and end of the longest of those stretches; (0, 0) without any."""


def composition(line: Timeline) -> Composition:
    """What each step's time was spent on. A loader that another thread than the steps' waits for
    holds nobody up.
    """
    trace, steps, busy, made = line.trace, line.steps, line.busy, line.copies
    slow = line.pageable.slow_ns
    to_device, beside_those = _copying(trace, made.work[made.to_device])
    to_host, beside_these = _copying(trace, made.work[made.to_host])
    waiting = loading(line, line.step_thread)
    unknown = _unknown(line)
    longest = int(np.argmax(unknown.end - unknown.start)) if len(unknown.start) else -1
    return Composition(
        total=steps.end - steps.start,
        busy=busy.covered(steps.start, steps.end),
        to_device=to_device.covered(steps.start, steps.end),
        to_device_alone=_without(to_device, beside_those, steps),
        to_device_slow=_by_step(made.step, np.where(made.to_device, slow, 0), steps),
        to_host=to_host.covered(steps.start, steps.end),
        to_host_alone=_without(to_host, beside_these, steps),
        to_host_slow=_by_step(made.step, np.where(made.to_host, slow, 0), steps),
        loader=waiting.covered(steps.start, steps.end),
        loader_alone=_without(waiting, busy, steps),
        unknown=unknown.covered(steps.start, steps.end),
        longest_unknown=(int(unknown.start[longest]), int(unknown.end[longest]))
        if longest >= 0
        else (0, 0),
    )


def _copying(trace: Trace, copies: Ints) -> tuple[Intervals, Intervals]:
    work, mine = trace.work, np.zeros(len(trace.work.start), np.bool_)
    mine[copies] = True
    return _spans(work.start, work.end, mine), _spans(work.start, work.end, ~mine)


def _by_step(step: Ints, ns: Ints, steps: Steps) -> Ints:
    result: Ints = np.bincount(
        step[step >= 0], weights=ns[step >= 0], minlength=steps.count
    ).astype(np.int64)
    return result


def _spans(start: Ints, end: Ints, rows: Ints | Flags) -> Intervals:
    return union(start[rows], end[rows])


def _without(one: Intervals, other: Intervals, steps: Steps) -> Ints:
    """Time of each step that one covers and the other does not."""
    alone: Ints = one.covered(steps.start, steps.end) - one.within(other).covered(
        steps.start, steps.end
    )
    return alone


def _unknown(line: Timeline) -> Intervals:
    """Long stretches inside steps without any event."""
    trace, steps = line.trace, line.steps
    edges = np.array([steps.start.min(initial=0), steps.end.max(initial=0)])
    known = [  # one table after the other: a trace has millions of events, and few stretches
        *_outermost(line.tree, that_count(trace)),
        line.busy,
        profilers_own(trace),
        Intervals(edges, edges),
    ]
    all_known = union(
        np.concatenate([each.start for each in known]), np.concatenate([each.end for each in known])
    )
    quiet = all_known.gaps().within(steps.windows)
    long = quiet.end - quiet.start >= STRETCH_NS
    return Intervals(quiet.start[long], quiet.end[long])


def _outermost(tree: CallTree, counts: Flags) -> list[Intervals]:
    """Time of operators that count and of calls in no counting operator: few of them."""
    operators, calls = tree.sources
    found = []
    for table, parent, rows in (
        (operators, tree.parent[: tree.operators], np.flatnonzero(counts)),
        (calls, tree.parent[tree.operators :], np.arange(len(calls.start))),
    ):
        above = parent[rows]
        within = (
            (above >= 0) & counts[above] & (table.end[rows] <= operators.end[above])
            if len(counts)
            else above >= 0
        )
        found.append(union(table.start[rows[~within]], table.end[rows[~within]]))
    return found
