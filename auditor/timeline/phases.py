"""Named parts of a step on the host: the loader, the optimizer's step, zeroing gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from auditor.timeline.intervals import Intervals, union
from auditor.timeline.naming import ALLOCATOR, is_launch, is_loading, is_step, mask, plain
from auditor.timeline.trace import Flags, Ints, Trace

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
    found: Flags = (~spans.annotation | phase) & ~mask(trace.names, spans.name, is_step)
    return found


@dataclass(frozen=True)
class LoaderWaits:
    """``enumerate(DataLoader)...`` spans: the time in which the loop had no batch. Times in ns."""

    rows: Ints
    """Rows of :class:`Operators`."""
    names: tuple[str, ...]
    in_steps_ns: int


def loader_waits(line: Timeline) -> LoaderWaits | None:
    """Time without a batch; None where no loader was recorded."""
    trace, spans = line.trace, line.trace.operators
    rows = np.flatnonzero(mask(trace.names, spans.name, is_loading))
    if not len(rows):
        return None
    return LoaderWaits(
        rows=rows,
        names=tuple(sorted({trace.names[code] for code in spans.name[rows]})),
        in_steps_ns=union(spans.start[rows], spans.end[rows]).overlap(line.steps.windows),
    )


def loading(line: Timeline, thread: int = -1) -> Intervals:
    """The time in which the loop had no batch; of one ``thread`` alone unless that is -1."""
    spans = line.trace.operators
    rows = line.loader.rows if line.loader is not None else np.empty(0, np.int64)
    rows = rows if thread < 0 else rows[spans.thread[rows] == thread]
    return union(spans.start[rows], spans.end[rows])


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
    """What the optimizers did; None where none was recorded."""
    trace, spans, tree = line.trace, line.trace.operators, line.tree
    stepping = mask(trace.names, tree.name, lambda name: name.startswith("Optimizer.step"))
    stepping[tree.operators :] = False  # a call is no phase, whatever its name
    rows = np.flatnonzero(stepping)
    if not len(rows):
        return None
    launching = np.flatnonzero(mask(trace.names, trace.calls.name, is_launch)) + tree.operators
    stretches = union(spans.start[rows], spans.end[rows])
    # on any thread; whose they are says the tree, which is slower
    meanwhile = np.flatnonzero(stretches.holds(spans.start))
    inside = meanwhile[tree.nearest(meanwhile, stepping) >= 0]
    codes, numbers = np.unique(spans.name[inside], return_counts=True)
    operators = {
        trace.names[code]: int(number) for code, number in zip(codes, numbers, strict=True)
    }
    return OptimizerUse(
        rows=rows,
        names=tuple(sorted({trace.names[code] for code in spans.name[rows]})),
        in_steps_ns=stretches.overlap(line.steps.windows),
        launches=int((tree.nearest(launching, stepping) >= 0).sum()),
        foreach_operators=sum(
            number for name, number in operators.items() if name.startswith("aten::_foreach")
        ),
        fused_operators=sum(number for name, number in operators.items() if "_fused_" in name),
    )


@dataclass(frozen=True)
class AllocatorCalls:
    """Calls of one API that take memory from the driver or give it back; most of them wait for the
    whole device.
    """

    api: str
    rows: Ints
    """Rows of :class:`Calls`."""
    ns: int
    per_step: Ints


def allocator_calls(line: Timeline) -> tuple[AllocatorCalls, ...]:
    """Calls that take memory from the driver or give it back, by API, the longest first."""
    trace, calls = line.trace, line.trace.calls
    found = []
    for code in np.flatnonzero(np.bincount(calls.name)).tolist():
        name = trace.names[code]
        if plain(name) in ALLOCATOR:
            rows = np.flatnonzero(calls.name == code)
            ns = int((calls.end[rows] - calls.start[rows]).sum())
            found.append(AllocatorCalls(name, rows, ns, line.steps.per_step(calls.start[rows])))
    return tuple(sorted(found, key=lambda one: (-one.ns, one.api)))
