"""Graphs that were built for nothing, and gradients that keep a graph of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .leaves_outside_optimizer import OutsideLeaf
from .rows import CycleRow, EvalRow


@dataclass(frozen=True)
class UnusedGraph:
    """A line that calls a module in eval mode with gradients on, or one in train mode whose
    parameters no optimizer holds.

    ``saved_bytes`` are those of one call (None: unknown).
    """

    site: Site
    module: str
    calls: int
    steps: int
    walked: int = 0
    held: bool = False
    saved_bytes: int | None = None
    mode: str = "eval"
    """``eval``, ``train`` (no optimizer holds its parameters) or ``trained`` (one does)."""
    fed: bool = False
    """Something that it was given wants a gradient."""
    parameters: tuple[str, ...] = ()
    outer: Site | None = None
    """The outermost line around it below which no graph is needed; None where it is this one."""


@dataclass(frozen=True)
class UnusedGraphs(Table):
    """Such lines of the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("evals",)

    places: tuple[UnusedGraph, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> UnusedGraphs:
        """From the loud pass."""
        rows = (row for row in rows_of(evidence, EvalRow) if row.pass_name == "loud")
        return cls(
            tuple(
                UnusedGraph(
                    evidence.recording.site(row.at),
                    row.module,
                    row.n,
                    row.steps,
                    row.walked,
                    row.held,
                    row.saved_bytes,
                    row.mode,
                    row.fed,
                    tuple(row.parameters),
                    None if row.outer is None else evidence.recording.site(row.outer),
                )
                for row in rows
            )
        )

    def for_nothing(self, calls: int) -> Iterator[UnusedGraph]:
        """Lines with this many calls, none of whose graphs a backward walked or anything keeps for
        later.
        """
        return (
            each
            for each in self.places
            if each.calls >= calls and not each.walked and not each.held
        )

    def for_nobody(self, calls: int, leaves: Iterable[OutsideLeaf]) -> Iterator[UnusedGraph]:
        """Lines whose graphs a backward walks to give gradients to parameters alone that no
        optimizer holds and whose gradients nobody looks at: a teacher, or an average of weights
        that the program changes itself.
        """
        known = {leaf.name: leaf for leaf in leaves if leaf.registered and not leaf.known}
        for each in self.places:
            if each.calls < calls or not each.walked or each.fed or each.mode == "trained":
                continue
            own = [known[name] for name in each.parameters if name in known]
            if own and (each.mode == "eval" or any(leaf.changed for leaf in own)):
                yield each


@dataclass(frozen=True)
class CreateGraphCycle:
    """A line whose ``backward(create_graph=True)`` left gradients with a graph, and on which steps
    they were still there.
    """

    site: Site
    steps: tuple[int, ...]
    leaves: tuple[int, ...]
    held_bytes: tuple[int, ...]

    @property
    def bytes_per_step(self) -> int | None:
        """Growth of what they hold; None where it is unknown or does not grow."""
        if len(self.held_bytes) < 2:
            return None
        growth = (self.held_bytes[-1] - self.held_bytes[0]) // (len(self.held_bytes) - 1)
        return growth if growth > 0 else None


@dataclass(frozen=True)
class CreateGraphCycles(Table):
    """Such lines of the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("cycles", "steps")

    steps: int = 0
    cycles: tuple[CreateGraphCycle, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> CreateGraphCycles:
        """From the loud pass."""
        rows = [row for row in rows_of(evidence, CycleRow) if row.pass_name == "loud"]
        rows.sort(key=lambda row: (row.at, row.step))
        found = []
        for at, together in groupby(rows, key=lambda row: row.at):
            mine = list(together)
            held = tuple(row.held_bytes for row in mine if row.held_bytes is not None)
            steps, leaves = tuple(row.step for row in mine), tuple(row.leaves for row in mine)
            found.append(
                CreateGraphCycle(
                    evidence.recording.site(at),
                    steps,
                    leaves,
                    held if len(held) == len(mine) else (),
                )
            )
        return cls(len(evidence.get(Steps).loud), tuple(found))

    def lasting(self, share: float) -> Iterator[CreateGraphCycle]:
        """Those that were there after at least this share of the steps."""
        return (each for each in self.cycles if len(each.steps) >= share * self.steps)
