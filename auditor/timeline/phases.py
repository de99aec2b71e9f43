"""What the host's operators mean: steps, loader, optimizer, and what steps are made of."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from auditor import amounts
from auditor.model.charts import Bar, Parts, Tone
from auditor.timeline.intervals import (
    ALLOCATOR,
    BACKWARD_MARK,
    NONE,
    Intervals,
    is_communication,
    is_launch,
    is_loading,
    is_step,
    mask,
    plain,
    spans_of,
    union,
)
from auditor.timeline.trace import KERNEL, Flags, Ints, Spans, Trace

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline


def that_count(trace: Trace) -> Flags:
    """Which operators are operators, or a phase: marks of steps (operators among others before
    2022), and the user's own annotations, say nothing by themselves.
    """
    spans = trace.operators
    phase = mask(
        trace.names,
        spans.name,
        lambda name: name.startswith(("Optimizer.", "enumerate(DataLoader)")),
    )
    return (~spans.annotation | phase) & ~mask(trace.names, spans.name, is_step)


@dataclass(frozen=True)
class LoaderWaits:
    """``enumerate(DataLoader)...`` spans: the time in which the loop had no batch. Times in ns."""

    rows: Ints
    """Rows of :class:`Operators`."""
    names: tuple[str, ...]
    in_steps_ns: int


def loader_waits(line: Timeline) -> LoaderWaits | None:
    """Time without a batch; None if no loader was recorded."""
    trace, spans = line.trace, line.trace.operators
    rows = np.flatnonzero(mask(trace.names, spans.name, is_loading))
    if not len(rows):
        return None
    return LoaderWaits(
        rows=rows,
        names=tuple(sorted({trace.names[code] for code in spans.name[rows]})),
        in_steps_ns=spans_of(spans, rows).overlap(line.steps.windows),
    )


def loading(line: Timeline, thread: int = -1) -> Intervals:
    """The time in which the loop had no batch; of one ``thread`` alone unless that is -1."""
    spans = line.trace.operators
    rows = line.loader.rows if line.loader is not None else np.empty(0, np.int64)
    rows = rows if thread < 0 else rows[spans.thread[rows] == thread]
    return spans_of(spans, rows)


@dataclass(frozen=True)
class OptimizerUse:
    """``Optimizer.step#...`` spans and what they did. Times in ns."""

    rows: Ints
    names: tuple[str, ...]
    in_steps_ns: int
    launches: int
    """Kernel launches inside."""
    foreach_operators: int
    fused_operators: int

    @property
    def launches_per_call(self) -> float:
        """Kernel launches per call of ``step()``."""
        return self.launches / len(self.rows)


def optimizer_use(line: Timeline) -> OptimizerUse | None:
    """What the optimizers did; None if none was recorded."""
    trace, spans, tree = line.trace, line.trace.operators, line.tree
    stepping = mask(trace.names, tree.name, lambda name: name.startswith("Optimizer.step"))
    stepping[tree.operators :] = False  # a call is no phase, whatever its name
    rows = np.flatnonzero(stepping)
    if not len(rows):
        return None
    launching = np.flatnonzero(mask(trace.names, trace.calls.name, is_launch)) + tree.operators
    stretches = spans_of(spans, rows)
    # on any thread; whose they are says the tree, which is slower
    meanwhile = np.flatnonzero(stretches.holds(spans.start))
    inside = spans.name[meanwhile[tree.nearest(meanwhile, stepping) >= 0]]
    foreach = mask(trace.names, inside, lambda name: name.startswith("aten::_foreach"))
    fused = mask(trace.names, inside, lambda name: "_fused_" in name)
    return OptimizerUse(
        rows=rows,
        names=tuple(sorted({trace.names[code] for code in spans.name[rows]})),
        in_steps_ns=stretches.overlap(line.steps.windows),
        launches=int((tree.nearest(launching, stepping) >= 0).sum()),
        foreach_operators=int(foreach.sum()),
        fused_operators=int(fused.sum()),
    )


@dataclass(frozen=True)
class AllocatorCalls:
    """Driver calls of one API that take memory or give it back; most wait for the device."""

    api: str
    rows: Ints
    """Rows of :class:`Calls`."""
    ns: int


def allocator_calls(line: Timeline) -> tuple[AllocatorCalls, ...]:
    """Calls that take memory from the driver or give it back, by API, the longest first."""
    trace, calls = line.trace, line.trace.calls
    found = []
    for code in np.flatnonzero(np.bincount(calls.name)).tolist():
        name = trace.names[code]
        if plain(name) in ALLOCATOR:
            rows = np.flatnonzero(calls.name == code)
            ns = int((calls.end[rows] - calls.start[rows]).sum())
            found.append(AllocatorCalls(name, rows, ns))
    return tuple(sorted(found, key=lambda one: (-one.ns, one.api)))


# -- steps -----------------------------------------------------------------------------------------
# Where the training steps are: the profiler's own marks, else the optimizer's calls, else the whole
# trace, and which of them.


PROFILER, OPTIMIZER, WHOLE = "ProfilerStep", "optimizer", "whole trace"


@dataclass(frozen=True)
class TraceSteps(Spans):
    """Training steps, in order of time. ``source`` (how found) belongs into words about them."""

    names: tuple[str, ...]
    source: str

    @property
    def count(self) -> int:
        """Number of steps; 1 for a whole trace."""
        return len(self.start)

    @property
    def marked(self) -> bool:
        """Whether the steps are known, rather than the whole trace taken for one."""
        return self.source != WHOLE

    @property
    def numbers(self) -> tuple[int, ...]:
        """The steps' numbers by name (``ProfilerStep#12``); from 0 if these do not ascend."""
        said = [re.search(r"\d{1,15}$", name) for name in self.names]
        found = [int(each[0]) for each in said if each is not None]
        ascend = len(found) == self.count and all(one < other for one, other in pairwise(found))
        return tuple(found) if ascend else tuple(range(self.count))

    @property
    def windows(self) -> Intervals:
        """The time inside steps."""
        return union(self.start, self.end)

    def share_of(self, covered: Intervals) -> Ints:
        """Time of each step that is covered."""
        return covered.covered(self.start, self.end)


def steps_of(line: Timeline) -> TraceSteps:
    """The training steps, and how they were found."""
    trace = line.trace
    return _marked(trace) or _by_optimizer(trace) or _whole_trace(trace)


def _marked(trace: Trace) -> TraceSteps | None:
    spans = trace.operators
    rows = np.flatnonzero(mask(trace.names, spans.name, is_step))
    if not len(rows):
        return None
    _, first = np.unique(
        np.stack((spans.start[rows], spans.name[rows].astype(np.int64))), axis=1, return_index=True
    )
    rows = rows[np.sort(first)]
    rows = rows[np.lexsort((spans.end[rows], spans.start[rows]))]
    return TraceSteps(
        spans.start[rows],
        spans.end[rows],
        tuple(trace.names[code] for code in spans.name[rows]),
        PROFILER,
    )


def _by_optimizer(trace: Trace) -> TraceSteps | None:
    """From one optimizer step to the next, of the one that steps least often (GANs have two)."""
    spans = trace.operators
    rows = np.flatnonzero(
        mask(trace.names, spans.name, lambda name: name.startswith("Optimizer.step"))
    )
    often = Counter(spans.name[rows].tolist())
    rare = [code for code, number in often.items() if number >= 2]
    if not rare:
        return None
    code = min(rare, key=lambda code: (often[code], code))
    ends = np.sort(spans.end[rows[spans.name[rows] == code]])
    names = tuple(f"step {number}" for number in range(len(ends) - 1))
    return TraceSteps(ends[:-1], ends[1:], names, OPTIMIZER)


def _whole_trace(trace: Trace) -> TraceSteps:
    start, end = trace.span_ns()
    return TraceSteps(np.array([start]), np.array([end]), ("whole trace",), WHOLE)


# -- patterns --------------------------------------------------------------------------------------
# Shapes of programs in the order of their operators: attention in pieces.


BATCHED = frozenset({"aten::bmm", "aten::baddbmm"})
SOFTMAX = frozenset({"aten::_softmax", "aten::_softmax_backward_data"})
OTHER_PRODUCTS = frozenset({"aten::mm", "aten::addmm"})


@dataclass(frozen=True)
class Attention:
    """Softmaxes between two batched products, both ways, by :class:`CallTree` row; device ns."""

    softmax: Ints
    ns: int


def attention(line: Timeline) -> Attention:
    """Attention that runs as bmm, softmax, bmm rather than as one kernel."""
    names, spans = line.trace.names, line.trace.operators
    wanted = BATCHED | SOFTMAX | OTHER_PRODUCTS
    rows = np.flatnonzero(mask(names, spans.name, wanted.__contains__))
    rows = rows[np.lexsort((spans.start[rows], spans.thread[rows]))]
    batched = mask(names, spans.name[rows], BATCHED.__contains__)
    softmax = mask(names, spans.name[rows], SOFTMAX.__contains__)
    thread = spans.thread[rows]
    found = batched[:-2] & softmax[1:-1] & batched[2:] & (thread[:-2] == thread[2:])
    between = np.flatnonzero(found) + 1
    involved = np.unique(np.concatenate((between - 1, between, between + 1)))
    return Attention(rows[between], int(line.launched_ns[rows[involved]].sum()))


# -- parts -----------------------------------------------------------------------------------------
# What the steps of a trace are made of, as a report draws it.


FORWARD, BACKWARD, OPTIMIZING, LOADER, WAIT, KERNELS, COPIES, COLLECTIVES, OTHER, IDLE = range(10)
TONES = (
    Tone("forward and other operators", 1),
    Tone("backward", 2),
    Tone("optimizer", 7),
    Tone("waiting for the loader", 5),
    Tone("host waits for the device", 6),
    Tone("kernels", 4),
    Tone("copies and memsets", 8),
    Tone("collectives", 9),
    Tone("Python, and what the trace does not show", -1),
    Tone("device idle", 0),
)

SLOW = 1.3
"""Times the median from which the slowest step is drawn beside the mean of all."""


def step_parts(line: Timeline) -> Parts | None:
    """Shares of the mean step on host and device, and of a slow one; None without marked steps."""
    steps = line.steps
    if not steps.marked or not steps.count:
        return None
    length = (steps.end - steps.start) / 1e3
    many, slowest = len(length) > 1, int(length.argmax())
    note = f"The mean of {len(length)} steps" if many else "One step"
    note += " under the profiler"
    picked = [("mean" if many else "step", slice(None))]
    if len(length) > 2 and length[slowest] > SLOW * float(np.median(length)):
        note += f", and the slowest, {steps.names[slowest]}"
        picked.append(("slowest", slice(slowest, slowest + 1)))
    sides = [("host", _shares(_host_parts(line), steps, OTHER))]
    if line.devices:
        sides.append(("device", _shares(_device_parts(line), steps, IDLE)))
    names: list[str] = []
    bars: list[Bar] = []
    for title, chosen in picked:
        for side, shares in sides:
            us_of = [(tone, float(us[chosen].mean())) for tone, us in shares]
            bars += _laid(len(names), us_of)
            names.append(f"{title}: {side}")
    return Parts(
        title="What the steps are made of",
        note=f"{note}. Each moment counts once: waiting "
        "first, then optimizer, backward, other operators.",
        rows=tuple(names),
        tones=TONES,
        bars=tuple(bars),
        codes=("DATA", "KERN001", "TIME", "DIST"),
    )


Floats = NDArray[np.float64]
Covers = list[tuple[int, Intervals]]


def outermost(line: Timeline) -> Ints:
    """Rows of operators and phases that lie in no other."""
    tree = line.tree
    wanted = np.zeros(len(tree.name), np.bool_)
    wanted[: tree.operators] = that_count(line.trace)
    rows = np.flatnonzero(wanted)
    return rows[tree.nearest(rows, wanted) < 0]


def phases(line: Timeline) -> Ints:
    """For each row of operators its phase: an index of :data:`TONES`."""
    spans, names = line.trace.operators, line.trace.names
    backward = (spans.forward_thread > 0) | mask(
        names, spans.name, lambda name: name.startswith(BACKWARD_MARK)
    )
    result = np.where(backward, BACKWARD, FORWARD)
    result[mask(names, spans.name, lambda name: name.startswith("Optimizer."))] = OPTIMIZING
    result[mask(names, spans.name, lambda name: name.startswith("enumerate(DataLoader)"))] = LOADER
    return result


def _host_parts(line: Timeline) -> Covers:
    """What the host did, the most telling first."""
    spans, waits, calls = line.trace.operators, line.waits, line.trace.calls
    rows, held = outermost(line), ~waits.profiler
    tone, mine = phases(line)[rows], spans.thread[rows] == line.main_thread
    rest, called = rows[(tone == FORWARD) & mine], calls.thread == line.main_thread
    forward = union(
        np.append(spans.start[rest], calls.start[called]),
        np.append(spans.end[rest], calls.end[called]),
    )
    return [
        (LOADER, spans_of(spans, rows[(tone == LOADER) & mine])),
        (WAIT, union(waits.start[held], waits.end[held])),
        (OPTIMIZING, spans_of(spans, rows[tone == OPTIMIZING])),
        (BACKWARD, spans_of(spans, rows[tone == BACKWARD])),
        (FORWARD, forward),
    ]


def _device_parts(line: Timeline) -> Covers:
    """What the busiest device did; a copy or collective counts where no kernel ran."""
    rows, work = line.devices[0].rows, line.trace.work
    collective = mask(line.trace.names, work.name[rows], is_communication)
    computing = (work.kind[rows] == KERNEL) & ~collective
    return [
        (KERNELS, spans_of(work, rows[computing])),
        (COLLECTIVES, spans_of(work, rows[collective])),
        (COPIES, spans_of(work, rows[~computing & ~collective])),
    ]


def _shares(parts: Covers, steps: TraceSteps, rest: int) -> list[tuple[int, Floats]]:
    """Us of each step that a part covers and no earlier part does; ``rest`` is what is left."""
    all_parts = Intervals(NONE, NONE)
    before = np.zeros(steps.count, np.int64)
    shares = []
    for tone, part in parts:
        edges = np.append(all_parts.start, part.start), np.append(all_parts.end, part.end)
        all_parts = union(*edges)
        covered = steps.share_of(all_parts)
        shares.append((tone, (covered - before) / 1e3))
        before = covered
    return [*shares, (rest, (steps.end - steps.start - before) / 1e3)]


def _laid(row: int, shares: list[tuple[int, float]]) -> Iterator[Bar]:
    total, place = sum(us for _, us in shares) or 1.0, 0.0
    for tone, us in shares:
        if us > 0:
            yield Bar(row, place, us, tone, f"{TONES[tone].name}, {amounts.percent(us / total)}")
            place += us
