"""Backward passes: which asked to keep their graph, and which kept graphs were walked again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor import amounts
from auditor.evidence.grouping import by_line
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Rows, Table
from auditor.model import Site
from auditor.recordings.schema.graph import BackwardRow, ReusedRow


@dataclass(frozen=True)
class Retained:
    """A line that asked to keep its graph, with its calls that did so."""

    site: Site
    calls: tuple[BackwardRow, ...]
    steps: int

    @property
    def times(self) -> int:
        """How many calls kept their graph."""
        return sum(call.n for call in self.calls)

    @property
    def pattern(self) -> StepPattern:
        """On which steps."""
        return step_pattern({call.step for call in self.calls}, self.steps)

    @property
    def held_bytes(self) -> int | None:
        """Most that one kept graph held; None if not measured."""
        return max(
            (call.held_bytes for call in self.calls if call.held_bytes is not None), default=None
        )

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        held = "not measured" if self.held_bytes is None else amounts.size(self.held_bytes)
        return ("kept graphs", str(self.times)), ("held by one", held)


@dataclass(frozen=True)
class Backward(Table):
    """Backward calls of the loud pass; ``reused`` are the lines whose kept graph was walked again
    (file, line), ``differentiated`` those with ``create_graph`` whose gradients were differentiated
    or are kept.
    """

    parts: ClassVar[tuple[str, ...]] = ("backward", "reused", "steps")

    steps: int = 0
    calls: tuple[BackwardRow, ...] = ()
    reused: frozenset[tuple[str, int]] = frozenset()
    differentiated: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def build(cls, evidence: Evidence) -> Backward:
        """From the loud pass."""
        walked = list(evidence.get(Rows[ReusedRow]))
        return cls(
            len(evidence.get(Steps).loud),
            tuple(evidence.get(Rows[BackwardRow])),
            frozenset(row.site.place for row in walked if not row.gradients),
            frozenset(row.site.place for row in walked if row.gradients),
        )

    def never_differentiated(self) -> Iterator[Retained]:
        """Lines that made a graph of their gradients which no later backward walked and nothing
        keeps.
        """
        for calls in self._lines():
            made = tuple(call for call in calls if call.create)
            known = made and all(call.followed for call in made)
            if known and made[0].site.place not in self.differentiated:
                yield Retained(made[0].site, made, self.steps)

    def walked_again(self) -> Iterator[Site]:
        """Lines that kept graphs with ``retain_graph`` which a later backward walked."""
        found = {
            call.site.place: call.site
            for call in self.calls
            if call.retain and call.site.place in self.reused
        }
        return iter(found.values())

    def never_reused(self) -> Iterator[Retained]:
        """Lines that kept graphs which no later backward walked.

        A line that also builds a graph of the backward itself (``create_graph``) is left out: that
        graph refers to the kept one without walking it through the engine's front door.
        """
        for calls in self._lines():
            kept = tuple(call for call in calls if call.retain)
            made = any(call.create for call in calls)
            if kept and not made and kept[0].site.place not in self.reused:
                yield Retained(kept[0].site, kept, self.steps)

    def _lines(self) -> Iterator[list[BackwardRow]]:
        return by_line(call for call in self.calls if call.step < self.steps)
