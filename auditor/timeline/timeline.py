"""The evidence in one trace: each table is computed when first asked for, and kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from auditor.timeline import copies as copying
from auditor.timeline import device, patterns, phases, totals, tree
from auditor.timeline import idle as idling
from auditor.timeline import waits as waiting
from auditor.timeline.idle import profilers_own
from auditor.timeline.intervals import Intervals, union
from auditor.timeline.naming import STREAM_ORDERED, is_launch, is_step, mask, plain
from auditor.timeline.phases import loading, that_count
from auditor.timeline.reading import read
from auditor.timeline.replay import what_if
from auditor.timeline.steps import Steps, steps_of
from auditor.timeline.trace import Codes, Flags, Ints, Trace
from auditor.timeline.tree import CallTree, Place, call_tree

STRETCH_NS = 1_000_000
"""Shorter gaps between events are Python's ordinary pace from one operator to the next (tens of
us), not a residual.
"""


@dataclass(frozen=True)
class Composition:
    """Time of each step in ns, one value a step. The parts overlap one another, but for those that
    say otherwise.
    """

    us: Ints
    """The whole step, as :class:`auditor.evidence.trace.steps.TraceStep` names it."""
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


def _composition(line: Timeline) -> Composition:
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
        us=steps.end - steps.start,
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


class Timeline:
    """Evidence of a :class:`Trace`. Times in ns on the trace's clock. Devices are in order of work,
    the busiest first.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @classmethod
    def of(cls, path: Path | str) -> Timeline:
        """Read a file; raises what :func:`auditor.timeline.read` raises."""
        return cls(read(path))

    steps = cached_property(steps_of)
    launches = cached_property(device.launches)
    launch_delay_ns = cached_property(device.launch_delay_ns)
    devices = cached_property(device.devices)
    waits = cached_property(waiting.waits)
    copies = cached_property(copying.copies)
    pageable = cached_property(copying.pageable)
    loader = cached_property(phases.loader_waits)
    composition = cached_property(_composition)
    optimizer = cached_property(phases.optimizer_use)
    allocator_calls = cached_property(phases.allocator_calls)
    idle = cached_property(idling.idle)
    replays = cached_property(what_if.replays)
    communication = cached_property(totals.communications)
    memory = cached_property(totals.memory_use)
    launching_operator = cached_property(totals.launching_operator)
    casts = cached_property(totals.casts)
    awkward_products = cached_property(totals.awkward_products)
    attention = cached_property(patterns.attention)
    index_loops = cached_property(patterns.index_loops)
    operators = cached_property(totals.operator_totals)
    kernels = cached_property(totals.kernel_totals)
    runtime_calls = cached_property(totals.call_totals)
    waiting_memsets = cached_property(waiting.waiting_memsets)

    @cached_property
    def _step_marks(self) -> Ints:
        return np.flatnonzero(mask(self.trace.names, self.trace.operators.name, is_step))

    @cached_property
    def tree(self) -> CallTree:
        """Which span ran inside which on the host."""
        return call_tree(self.trace.operators, self.trace.calls, self._step_marks)

    @cached_property
    def busy(self) -> Intervals:
        """The time in which any device worked."""
        return union(self.trace.work.start, self.trace.work.end)

    @cached_property
    def device_missing(self) -> bool:
        """Whether kernels were launched, or devices are listed, and yet no work of a device was
        recorded (CUPTI failed).
        """
        launched = mask(self.trace.names, self.trace.calls.name, is_launch).any()
        return not len(self.trace.work.start) and bool(launched or self.trace.info.devices)

    @cached_property
    def wait_places(self) -> list[Place | None]:
        """The user's function around each wait, None where the trace has no frames."""
        found = self.waits
        return tree.places(self.trace, self.trace.calls.thread[found.call], found.start)

    def places_of(self, rows: Ints) -> list[Place | None]:
        """The user's functions around operators (rows of the tree)."""
        operators = self.trace.operators
        return tree.places(self.trace, operators.thread[rows], operators.start[rows])

    @cached_property
    def driver_calls(self) -> Ints:
        """Calls (rows of ``trace.calls``) that take memory from the driver or give it back, and
        memsets that hold the host.
        """
        rows = [one.rows for one in self.allocator_calls if plain(one.api) not in STREAM_ORDERED]
        return np.unique(np.concatenate([*rows, self.waiting_memsets]))

    @cached_property
    def wait_prices(self) -> Ints:
        """For each host wait the idle time of the device that it cost, in ns, shared out with
        everything else that made it idle.
        """
        return (
            self.idle.of_waits
            if self.idle is not None
            else np.zeros(len(self.waits.call), np.int64)
        )

    def host_in(self, start: int, end: int, thread: int) -> str:
        """What a host thread was in for the greater part of a stretch of time; empty where the
        trace does not show it.
        """
        return idling.doing(self.trace, (start, end), thread)

    def call_prices(self, rows: Ints) -> Ints:
        """What calls among :attr:`driver_calls` cost: the device's idle time while and because they
        held the host, in ns.
        """
        if self.idle is None:
            return np.zeros(len(rows), np.int64)
        result: Ints = self.idle.of_driver[np.searchsorted(self.idle.driver_calls, rows)]
        return result

    def functions_at(self, times: Ints, threads: Codes) -> list[Place | None]:
        """The user's innermost function at moments of a host thread, if the trace has frames."""
        return tree.places(self.trace, threads, times)

    @cached_property
    def longest_unknown(self) -> tuple[Place | None, str]:
        """The user's function in the longest stretch without events, and the innermost one of
        anybody's that holds it.
        """
        start, end = self.composition.longest_unknown
        times, thread = (
            np.array([(start + end) // 2], np.int64),
            np.array([self.main_thread], np.int32),
        )
        return self.functions_at(times, thread)[0], tree.around(
            self.trace, self.main_thread, start, end
        )

    @cached_property
    def step_thread(self) -> int:
        """The host thread that marks the steps, -1 where the profiler did not mark them."""
        threads = self.trace.operators.thread[self._step_marks]
        return int(np.bincount(threads).argmax()) if len(threads) else -1

    @cached_property
    def main_thread(self) -> int:
        """The same, else the busiest host thread."""
        threads = self.trace.operators.thread
        return (
            int(np.bincount(threads).argmax())
            if self.step_thread < 0 and len(threads)
            else self.step_thread
        )

    @cached_property
    def launched_ns(self) -> Ints:
        """For each row of the tree the time of the device work that it launched itself."""
        launcher, work = self.launching_operator, self.trace.work
        known = launcher >= 0
        spent = np.bincount(
            launcher[known], weights=(work.end - work.start)[known], minlength=len(self.tree.name)
        )
        result: Ints = spent.astype(np.int64)
        return result

    @cached_property
    def operator_calls(self) -> dict[str, int]:
        """How often each operator and annotation ran, by name."""
        numbers = np.bincount(self.trace.operators.name)
        return {
            self.trace.names[code]: int(numbers[code]) for code in np.flatnonzero(numbers).tolist()
        }

    def compute(self) -> None:
        """Compute every table now (benchmarks, and processes that send a timeline on)."""
        for name, member in vars(type(self)).items():
            if isinstance(member, cached_property):
                getattr(self, name)
