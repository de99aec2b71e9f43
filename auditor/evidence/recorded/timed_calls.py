"""What lines that make calls have in common: on which steps, how often, how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.model import Site


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


C = TypeVar("C", bound=TimedCall)


@dataclass(frozen=True)
class CallingLine(Generic[C]):
    """A line, and its calls in the ``steps`` steps of one pass."""

    site: Site
    calls: tuple[C, ...]
    steps: int

    @property
    def pattern(self) -> StepPattern:
        """On which steps it calls."""
        return step_pattern({call.step for call in self.calls}, self.steps)

    @property
    def per_step(self) -> float:
        """Calls in each step, on average."""
        return sum(call.n for call in self.calls) / self.steps if self.steps else 0.0

    @property
    def us_per_step(self) -> float:
        """Host time inside the calls, averaged over all steps of the pass, in us."""
        return sum(call.us for call in self.calls) / self.steps if self.steps else 0.0
