"""What the order of operators says: attention in pieces, layouts, the search for algorithms."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import gpu_timeline, kernel_timeline
from auditor.model import Site

if TYPE_CHECKING:
    from typing import Self

    from auditor.timeline import Timeline
    from auditor.timeline.trace import Ints


LOOKED_AT = 64
"""Upper bound on operators whose places are looked up: those of one kind mostly share a place."""


def where(line: Timeline, rows: Ints) -> Site | None:
    """Where most of these operators (rows of the call tree) were called from; None if unknown."""
    found = Counter(place for place in line.places_of(rows[:LOOKED_AT]) if place is not None)
    return next((Site(at.file, at.line, at.function) for at, _ in found.most_common(1)), None)


TRANSPOSES = ("nchwToNhwc", "nhwcToNchw", "batched_transpose_")
"""Kernels of cuDNN and MIOpen that turn the layout of a tensor around a convolution."""


@dataclass(frozen=True)
class Tuning:
    """cuDNN trying its algorithms: its steps, and the host time it held, in us in all."""

    seen: frozenset[int]
    times: int
    us: float


@dataclass(frozen=True)
class Structure(Table):
    """Patterns in a trace with work of a device. Times are sums in us where not said otherwise."""

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    steps: int = 1
    marked: bool = False
    kernel_us: float = 0.0
    attentions: int = 0
    """Softmaxes between two batched products, forward and backward."""
    attention_us: float = 0.0
    attention_at: Site | None = None
    transposes: tuple[tuple[str, float], ...] = ()
    """Kernels that change layouts, and their time."""
    tuning: Tuning | None = None

    @classmethod
    def build(cls, evidence: Evidence) -> Structure:
        """From the trace. Raises :class:`NotLooked` if it shows no kernel."""
        line = kernel_timeline(evidence)
        return cls(
            steps=line.steps.count,
            marked=line.steps.marked,
            kernel_us=line.devices[0].kernel_ns / 1e3,
            attentions=len(line.attention.softmax),
            attention_us=line.attention.ns / 1e3,
            attention_at=where(line, line.attention.softmax),
            transposes=tuple(
                (one.name, one.ns / 1e3)
                for one in line.kernels
                if any(word in one.name for word in TRANSPOSES)
            ),
            tuning=_tuning(line),
        )

    @property
    def attention_share(self) -> float:
        """Part of all kernel time in attention that runs in pieces."""
        return self.attention_us / self.kernel_us if self.kernel_us else 0.0

    @property
    def transpose_us(self) -> float:
        """Time of kernels that change layouts."""
        return sum(us for _, us in self.transposes)

    @property
    def tuned(self) -> StepPattern:
        """On which steps cuDNN tried its algorithms."""
        return step_pattern(set(self.tuning.seen) if self.tuning else set(), self.steps)


def _tuning(line: Timeline) -> Tuning | None:
    waits, tree, names = line.waits, line.tree, line.trace.names
    known = waits.synchronises & (waits.operator >= 0) & (waits.step >= 0)
    rows = []
    for row in known.nonzero()[0].tolist():
        operator = names[tree.name[waits.operator[row]]]
        convolves = "cudnn_convolution" in operator or operator == "aten::convolution_backward"
        if convolves and "EventSynchronize" in names[line.trace.calls.name[waits.call[row]]]:
            rows.append(row)
    seen = frozenset(waits.step[rows].tolist())
    return Tuning(seen, len(rows), int(waits.held[rows].sum()) / 1e3) if rows else None


# -- optimizers ------------------------------------------------------------------------------------

MANY_LAUNCHES = 50
"""Launches in one ``step()`` from which it steps one by one: a foreach step has about ten."""

_NAME = re.compile(r"Optimizer\.step#(\w+)\.step")


@dataclass(frozen=True)
class OptimizerCalls(Table):
    """Calls of ``Optimizer.step`` in a trace. ``calls`` is 0 if there is none.

    ``idle_us_per_step`` is the time in a step in which the device idled between launches inside
    them: what faster ones could win back. ``host_share`` is their part of the steps' time on the
    host.
    """

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    names: tuple[str, ...] = ()
    calls: int = 0
    steps: int = 1
    marked: bool = False
    launches_per_call: float = 0.0
    foreach: int = 0
    fused: int = 0
    host_share: float = 0.0
    idle_us_per_step: float = 0.0
    us_per_step: float = 0.0
    """Host time inside them in each step."""
    where: Site | None = None

    @classmethod
    def build(cls, evidence: Evidence) -> Self:
        """From the trace. Raises :class:`NotLooked` if it shows no device's work (a CPU)."""
        line = gpu_timeline(evidence)
        use = line.optimizer
        if use is None:
            return cls()
        steps = line.steps.count
        return cls(
            names=tuple(found[1] if (found := _NAME.match(name)) else name for name in use.names),
            calls=len(use.rows),
            steps=steps,
            marked=line.steps.marked,
            launches_per_call=use.launches_per_call,
            foreach=use.foreach_operators,
            fused=use.fused_operators,
            host_share=use.in_steps_ns / max(1, line.steps.windows.length),
            idle_us_per_step=_idle_ns(line) / 1e3 / steps,
            us_per_step=use.in_steps_ns / 1e3 / steps,
            where=where(line, use.rows),
        )

    @property
    def one_by_one(self) -> bool:
        """Whether the optimizer launches kernels for each parameter alone."""
        return (
            bool(self.calls)
            and self.launches_per_call >= MANY_LAUNCHES
            and not self.foreach
            and not self.fused
        )


def _idle_ns(line: Timeline) -> int:
    from auditor.timeline.intervals import spans_of
    from auditor.timeline.waits import launched_in

    assert line.optimizer is not None
    spans = spans_of(line.trace.operators, line.optimizer.rows)
    return launched_in(line.idle, spans) if line.idle is not None else 0
