"""Python loops that went over a tensor piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema import PiecewiseRow

FUNCTIONS = ("torch/nn/functional.py", "torch/functional.py", "torch/_tensor.py")
"""Libraries below which an operator still belongs to the user's line: modules and optimizers have
loops of their own.
"""


@dataclass(frozen=True)
class IndexingLoop:
    """A line that one operator runs on, turn after turn, on ``steps`` watched steps.

    ``turns`` and ``operators`` (of all turns) in each step; ``share`` of all operators outside the
    backward; ``elements`` of a piece at most.
    """

    site: Site
    op: str
    turns: float
    operators: float
    share: float
    elements: int
    steps: int = 1


@dataclass(frozen=True)
class IndexingLoops(Table):
    """The loops of the pass ``numbers``, which watched ``steps`` steps."""

    parts: ClassVar[tuple[str, ...]] = ("piecewise",)

    steps: int = 0
    loops: tuple[IndexingLoop, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> IndexingLoops:
        """From what the pass left."""
        steps = sum(
            each["steps"]
            for each in evidence.recording.manifest.get("passes", ())
            if each["name"] == "numbers"
        )
        rows = [row for row in rows_of(evidence, PiecewiseRow) if _is_own(evidence, row)]
        by_line = groupby(sorted(rows, key=lambda row: row.at), key=lambda row: row.at)
        return cls(steps, tuple(_loop(evidence, list(here)) for _, here in by_line))

    def short(self, body: int) -> Iterator[IndexingLoop]:
        """Loops of so few operators a turn that are there on every step."""
        return (
            each
            for each in self.loops
            if each.steps == self.steps and each.operators <= body * each.turns
        )


def _is_own(evidence: Evidence, row: PiecewiseRow) -> bool:
    via = evidence.recording.site_row(row.at).via or ""
    return not via or via.startswith(FUNCTIONS)


def _loop(evidence: Evidence, rows: list[PiecewiseRow]) -> IndexingLoop:
    steps = len({row.step for row in rows})
    return IndexingLoop(
        site=evidence.recording.site(rows[0].at),
        op=rows[0].op,
        turns=sum(row.n for row in rows) / steps,
        operators=sum(row.operators for row in rows) / steps,
        share=sum(row.operators for row in rows) / max(1, sum(row.all for row in rows)),
        elements=max(row.elements for row in rows),
        steps=steps,
    )
