"""Optimizers that step parameter by parameter because they were told to, counted in a rehearsal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.evidence.trace.optimizer import OptimizerCalls
from auditor.model import Site

from .rows import SingleTensorStepRow

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True)
class StepCall:
    """Calls of one optimizer's ``step()`` in one step of the program, and the operators in them."""

    name: str
    site: Site
    made_at: Site | None
    step: int
    n: int
    operators: int


@dataclass(frozen=True)
class Alone:
    """One optimizer of that kind."""

    calls: tuple[StepCall, ...]
    steps: int

    @property
    def first(self) -> StepCall:
        """Its first call: all of them have the same places."""
        return self.calls[0]

    @property
    def pattern(self) -> StepPattern:
        """On which steps it stepped."""
        return step_pattern({call.step for call in self.calls}, self.steps)

    @property
    def per_step(self) -> float:
        """Calls in each step, on average."""
        return sum(call.n for call in self.calls) / self.steps

    @property
    def operators_per_call(self) -> float:
        """Operators in one ``step()``: each is a launch on a GPU, or more."""
        return sum(call.operators for call in self.calls) / sum(call.n for call in self.calls)


@dataclass(frozen=True)
class SingleTensorSteps(Table):
    """All of them; none where the run was no rehearsal."""

    parts: ClassVar[tuple[str, ...]] = ("optimizer", "steps")

    steps: int = 0
    calls: tuple[StepCall, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> SingleTensorSteps:
        """From the loud pass."""
        rows = [row for row in rows_of(evidence, SingleTensorStepRow) if row.pass_name == "loud"]
        calls = (
            StepCall(
                row.name,
                evidence.recording.site(row.at),
                None if row.made_at is None else evidence.recording.site(row.made_at),
                row.step,
                row.n,
                row.operators,
            )
            for row in rows
            if row.at is not None
        )
        return cls(len(evidence.get(Steps).loud), tuple(calls))

    def alone(self) -> Iterator[Alone]:
        """By optimizer: the line that made it, or the one that steps it."""
        mine = [call for call in self.calls if call.step < self.steps]
        for _, calls in groupby(sorted(mine, key=_by_line), key=_by_line):
            yield Alone(tuple(calls), self.steps)


def _by_line(call: StepCall) -> tuple[str, int, str]:
    site = call.made_at or call.site
    return site.file, site.line, call.name


@dataclass(frozen=True)
class RunsOptimizerCalls(OptimizerCalls):
    """:class:`OptimizerCalls` of a run with a GPU. A rehearsal has no trace, and nothing of it
    here.
    """

    @classmethod
    def build(cls, evidence: Evidence) -> Self:
        """From the trace, as the base."""
        return cls() if evidence.recording.device.shadow else super().build(evidence)
