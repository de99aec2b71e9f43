"""What lines that make calls have in common: on which steps, how often, how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from auditor.evidence.recorded.step_pattern import StepPattern, counted_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, rows_of
from auditor.model import Site
from auditor.recordings.row import PassRow


class TimedCall(Protocol):
    """Calls at one place in one step of a pass."""

    @property
    def step(self) -> int:
        """Number in its pass, from 0."""

    @property
    def n(self) -> int:
        """How many calls."""

    @property
    def us(self) -> float:
        """Host time inside them, in us."""


class LedCall(TimedCall, Protocol):
    """The same, led to by a call in the training loop."""

    @property
    def called(self) -> Site | None:
        """That call; None where the line itself is in the loop."""


C = TypeVar("C", bound=TimedCall)
R = TypeVar("R", bound=PassRow)


@dataclass(frozen=True)
class CallingLine(Generic[C]):
    """A line, and its calls in the ``steps`` steps of one pass."""

    site: Site
    calls: tuple[C, ...]
    steps: int

    @property
    def pattern(self) -> StepPattern:
        """On which steps it calls."""
        return counted_pattern(((call.step, call.n) for call in self.calls), self.steps)

    @property
    def per_step(self) -> float:
        """Calls in each step, on average."""
        return self.pattern.mean((call.step, call.n) for call in self.calls)

    @property
    def us(self) -> float:
        """Host time inside all of them, in us."""
        return sum(call.us for call in self.calls)

    @property
    def us_per_step(self) -> float:
        """Host time inside the calls, averaged over all steps of the pass, in us."""
        return self.us / self.steps if self.steps else 0.0


def most_called(calls: Iterable[LedCall]) -> Site | None:
    """The call in the loop from which most of these came."""
    times: Counter[Site | None] = Counter()
    for call in calls:
        times[call.called] += call.n
    return max(times, key=lambda site: times[site])


def of_quiet(evidence: Evidence, kind: type[R]) -> list[R]:
    """Rows of the timing pass's steps; those of a step that did not complete are left out."""
    steps = len(evidence.get(Steps).quiet)
    return [row for row in rows_of(evidence, kind) if row.step < steps]
