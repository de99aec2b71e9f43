"""What the optimizers did in a trace: launches for each call of ``step()``, and the time that it
took on host and device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import gpu_timeline
from auditor.evidence.trace.patterns import NOWHERE, Where, where

if TYPE_CHECKING:
    from typing import Self

    from auditor.timeline import Timeline

MANY_LAUNCHES = 50
"""Launches in one ``step()`` from which it steps parameter by parameter: a foreach step of any
model has about ten.
"""

_NAME = re.compile(r"Optimizer\.step#(\w+)\.step")


@dataclass(frozen=True)
class OptimizerCalls(Table):
    """Calls of ``Optimizer.step`` in a trace. ``calls`` is 0 where there is none.

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
    where: Where = NOWHERE

    @classmethod
    def build(cls, evidence: Evidence) -> Self:
        """From the trace. Raises :class:`NotLooked` where it shows no work of a device: on a CPU
        nothing is launched.
        """
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
    from auditor.timeline.idle import launched_in
    from auditor.timeline.intervals import union

    assert line.optimizer is not None
    rows = line.optimizer.rows
    spans = union(line.trace.operators.start[rows], line.trace.operators.end[rows])
    return launched_in(line.idle, spans) if line.idle is not None else 0
