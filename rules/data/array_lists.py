"""Tensors that are made of lists of NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema import ListedRow


@dataclass(frozen=True)
class ArrayList:
    """Calls of one line in ``steps`` steps: ``us`` is their time in a step, or in a batch that a
    worker made of it; ``share`` that of the step's own time, or of the worker's for such a batch.
    """

    site: Site
    calls: int
    us: float
    share: float
    arrays: float
    numbers: float
    in_worker: bool
    steps: int


@dataclass(frozen=True)
class ArrayLists(Table):
    """All such lines of the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("listed", "steps")

    lines: tuple[ArrayList, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> ArrayLists:
        """From the diagnostic pass: in the step and in workers."""
        steps = evidence.get(Steps)
        rows = [row for row in rows_of(evidence, ListedRow) if row.n and steps.loud]
        return cls(tuple(_line(evidence, row, steps) for row in rows))

    def worth(self, share: float, least_us: float) -> Iterator[ArrayList]:
        """Those that take so much."""
        return (each for each in self.lines if each.share >= share and each.us >= least_us)


def _line(evidence: Evidence, row: ListedRow, steps: Steps) -> ArrayList:
    in_worker = row.where == "worker"
    us = row.us / (row.n if in_worker else len(steps.loud))
    of_batch = row.us / row.fetch_us if row.fetch_us else 0.0
    return ArrayList(
        evidence.recording.site(row.at),
        row.n,
        us,
        of_batch if in_worker else steps.share_of_step(us),
        row.arrays / row.n,
        row.numbers / row.n,
        in_worker,
        len(steps.loud),
    )
