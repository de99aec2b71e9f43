"""Graphs that were built for nothing, and gradients that keep a graph of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from auditor.evidence.steps import Steps
from auditor.evidence.table import Table, rows_of
from auditor.model import Site
from auditor.recording import Recording


@dataclass(frozen=True)
class Evaluation:
    """A line that calls a module in eval mode with gradients on, or one in train mode whose parameters no optimizer holds.

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
    """``eval`` or ``train``."""


@dataclass(frozen=True)
class Evaluations(Table):
    """Such lines of the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("evals",)

    places: tuple[Evaluation, ...] = ()

    @classmethod
    def build(cls, recording: Recording) -> Evaluations:
        """From the loud pass."""
        rows = (row for row in rows_of(recording, "evals") if row["pass"] == "loud")
        return cls(
            tuple(
                Evaluation(
                    recording.site(row["at"]),
                    row["module"],
                    row["n"],
                    row["steps"],
                    row["walked"],
                    row["held"],
                    row["saved_bytes"],
                    row.get("mode", "eval"),
                )
                for row in rows
            )
        )

    def for_nothing(self, calls: int) -> Iterator[Evaluation]:
        """Lines with this many calls, none of whose graphs a backward walked or anything keeps for later."""
        return (each for each in self.places if each.calls >= calls and not each.walked and not each.held)


@dataclass(frozen=True)
class Cycle:
    """A line whose ``backward(create_graph=True)`` left gradients with a graph, and on which steps they were still there."""

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
class Cycles(Table):
    """Such lines of the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("cycles", "steps")

    steps: int = 0
    cycles: tuple[Cycle, ...] = ()

    @classmethod
    def build(cls, recording: Recording) -> Cycles:
        """From the loud pass."""
        rows = [row for row in rows_of(recording, "cycles") if row["pass"] == "loud"]
        rows.sort(key=lambda row: (row["at"], row["step"]))
        found = []
        for at, together in groupby(rows, key=lambda row: row["at"]):
            mine = list(together)
            held = tuple(row["held_bytes"] for row in mine if row["held_bytes"] is not None)
            steps, leaves = tuple(row["step"] for row in mine), tuple(row["leaves"] for row in mine)
            found.append(Cycle(recording.site(at), steps, leaves, held if len(held) == len(mine) else ()))
        return cls(len(Steps.build(recording).loud), tuple(found))

    def lasting(self, share: float) -> Iterator[Cycle]:
        """Those that were there after at least this share of the steps."""
        return (each for each in self.cycles if len(each.steps) >= share * self.steps)
