"""Backward calls of one step that walk the same autograd nodes more than once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import ClassVar

from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import RewalkRow

FEWEST_CALLS = 3
"""Calls of one line in a step from which it can be told that they walk ever more."""


@dataclass(frozen=True)
class Call:
    """One backward of a step."""

    site: Site
    nodes: int
    again: int
    """Nodes that an earlier call of the step had walked and kept."""
    newer: int
    """Those of them that were made after the first such call."""
    kept: bool = False
    summed: bool = False
    """It adds its gradients to those that are there."""
    name: str = ""
    """The variable that held the earlier graph."""
    stored: Site | None = None
    """The line that fills it."""


@dataclass(frozen=True)
class Rewalk:
    """The calls of one step that belong together."""

    calls: tuple[Call, ...]
    steps: int
    """Steps in which they did so."""

    @property
    def again(self) -> int:
        """Nodes walked again in the step."""
        return sum(call.again for call in self.calls)

    @property
    def share(self) -> float:
        """Of all nodes that these calls walked."""
        return self.again / max(1, sum(call.nodes for call in self.calls))

    @property
    def sites(self) -> tuple[Site, ...]:
        """Their lines, in the order of the source."""
        by_line = {(call.site.file, call.site.line): call.site for call in self.calls}
        return tuple(by_line[line] for line in sorted(by_line))

    @property
    def carrier(self) -> Call | None:
        """The last call of which it is known which line filled the variable with the earlier
        graph.
        """
        return next((call for call in reversed(self.calls) if call.stored is not None), None)


@dataclass(frozen=True)
class BackwardRewalks(Table):
    """Calls of the loud steps in which a graph was walked twice, step by step."""

    parts: ClassVar[tuple[str, ...]] = ("rewalked", "steps")

    steps: int = 0
    seen: tuple[tuple[Call, ...], ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> BackwardRewalks:
        """From the loud pass."""
        steps = len(evidence.get(Steps).loud)
        rows = [row for row in rows_of(evidence, RewalkRow) if row.pass_name == "loud"]
        together = groupby((row for row in rows if row.step < steps), key=lambda row: row.step)
        return cls(
            steps, tuple(tuple(_call(evidence, row) for row in mine) for _, mine in together)
        )

    def growing(self, share: float) -> Iterator[Rewalk]:
        """Lines of which each call of a step walks the graphs of all calls before it, ever more of
        what was made since the first, on this share of the steps.
        """
        found: dict[tuple[str, int], list[tuple[Call, ...]]] = {}
        for calls in self.seen:
            for line in dict.fromkeys(_line(call) for call in calls):
                mine = tuple(call for call in calls if _line(call) == line)
                if _grow(mine):
                    found.setdefault(line, []).append(mine)
        for steps in found.values():
            if len(steps) >= share * self.steps:
                yield Rewalk(steps[-1], len(steps))

    def shared(self, share: float) -> Iterator[Rewalk]:
        """Groups of lines whose calls walk one part again that was there before the first of them,
        on this share of the steps.
        """
        found: dict[tuple[Site, ...], list[Rewalk]] = {}
        for calls in self.seen:
            group = Rewalk(_over_one_part(calls), 1)
            if group.calls:
                found.setdefault(group.sites, []).append(group)
        for steps in found.values():
            if len(steps) >= share * self.steps:
                yield Rewalk(steps[-1].calls, len(steps))


def _grow(calls: tuple[Call, ...]) -> bool:
    summed = all(call.summed for call in calls)
    newer = [call.newer for call in calls[1:]]
    return (
        summed
        and len(calls) >= FEWEST_CALLS
        and calls[1].again > 0
        and all(later > earlier for earlier, later in pairwise(newer))
    )


def _over_one_part(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """From the call that kept the part first to the last that walked it; none where one of them did
    anything else.
    """
    last = max((at for at, call in enumerate(calls) if call.again), default=-1)
    first = next((at for at, call in enumerate(calls) if call.kept), len(calls))
    mine = calls[first : last + 1]
    right = all(call.summed and not call.newer and call.again for call in mine[1:])
    return mine if len(mine) > 1 and right and mine[0].summed else ()


def _line(call: Call) -> tuple[str, int]:
    return call.site.file, call.site.line


def _call(evidence: Evidence, row: RewalkRow) -> Call:
    stored = (
        evidence.recording.site_at(row.file, row.line, row.function)
        if row.line is not None
        else None
    )
    return Call(
        evidence.recording.site(row.at),
        row.nodes,
        row.again,
        row.newer,
        row.kept,
        row.summed,
        row.name,
        stored,
    )
