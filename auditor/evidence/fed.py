"""What the optimizers had to step with: parameters that never got a gradient, groups whose rate is zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Table, rows_of
from auditor.model import Site
from auditor.recording import Recording, Row


@dataclass(frozen=True)
class Unfed:
    """A parameter that got no gradient in any step."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Stepped:
    """One optimizer in the loud pass: ``steps`` it took, its trainable ``parameters``, what it never had anything for.

    ``unfed`` are the first of ``n``; ``still`` are (group, trainable parameters) whose rate was zero on every step.
    """

    optimizer: str
    site: Site | None
    steps: int
    parameters: int
    unfed: tuple[Unfed, ...] = ()
    n: int = 0
    still: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Fed(Table):
    """All optimizers that stepped in the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("fed",)

    optimizers: tuple[Stepped, ...] = ()

    @classmethod
    def build(cls, recording: Recording) -> Fed:
        """From the loud pass."""
        return cls(tuple(_stepped(recording, row) for row in rows_of(recording, "fed") if row["pass"] == "loud"))

    def long_enough(self, steps: int) -> Iterator[Stepped]:
        """Those that took at least this many steps."""
        return (each for each in self.optimizers if each.steps >= steps)


def _stepped(recording: Recording, row: Row) -> Stepped:
    at = row["at"]
    return Stepped(
        row["optimizer"],
        None if at is None else recording.site(at),
        row["steps"],
        row["parameters"],
        tuple(Unfed(each["name"], tuple(each["shape"])) for each in row["unfed"]),
        row["n"],
        tuple((each["group"], each["parameters"]) for each in row["still"]),
    )
