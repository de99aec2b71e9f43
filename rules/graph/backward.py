"""Backward passes: which asked to keep their graph, and which kept graphs were walked again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from auditor.evidence.recorded.lines import Line, Lines
from auditor.evidence.table import Evidence, Rows, Table
from auditor.model import Site
from auditor.recordings.schema.graph import BackwardRow, ReusedRow


@dataclass(frozen=True)
class Backward(Table):
    """Backward calls of the loud pass; ``reused`` are the lines whose kept graph was walked again
    (file, line), ``differentiated`` those with ``create_graph`` whose gradients were differentiated
    or are kept.
    """

    parts: ClassVar[tuple[str, ...]] = ("backward", "reused", "steps")

    calls: Lines[BackwardRow] = field(default_factory=Lines[BackwardRow])
    reused: frozenset[tuple[str, int]] = frozenset()
    differentiated: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def build(cls, evidence: Evidence) -> Backward:
        """From the loud pass."""
        walked = list(evidence.get(Rows[ReusedRow]))
        return cls(
            evidence.get(Lines[BackwardRow]),
            frozenset(row.site.place for row in walked if not row.gradients),
            frozenset(row.site.place for row in walked if row.gradients),
        )

    def never_differentiated(self) -> Iterator[Line[BackwardRow]]:
        """Lines that made a graph of their gradients which no later backward walked and nothing
        keeps.
        """
        for line in self.calls.lines(lambda call: call.create):
            known = all(call.followed for call in line.rows)
            if known and line.site.place not in self.differentiated:
                yield line

    def walked_again(self) -> Iterator[Site]:
        """Lines that kept graphs with ``retain_graph`` which a later backward walked."""
        kept = self.calls.lines(lambda call: call.retain)
        return (line.site for line in kept if line.site.place in self.reused)

    def never_reused(self) -> Iterator[Line[BackwardRow]]:
        """Lines that kept graphs which no later backward walked.

        A line that also builds a graph of the backward itself (``create_graph``) is left out: that
        graph refers to the kept one without walking it through the engine's front door.
        """
        made = {call.site.place for call in self.calls if call.create}
        for line in self.calls.lines(lambda call: call.retain):
            if line.site.place not in self.reused | made:
                yield line
