"""Files that are read whole, several times for the same batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema import RereadRow


@dataclass(frozen=True)
class RereadFile:
    """Reads of one line by the function ``name``: ``reads`` for a batch (made in a worker) or step,
    of which ``again`` are a share that read a file once more. ``us`` is their time, ``share`` that
    of the step's own time, or of the worker's for such a batch.
    """

    site: Site
    name: str
    path: str
    size: int
    reads: float
    again: float
    us: float
    share: float
    in_worker: bool
    steps: int


@dataclass(frozen=True)
class RereadFiles(Table):
    """All such lines of the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("reread", "steps")

    lines: tuple[RereadFile, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> RereadFiles:
        """From the diagnostic pass: in the step and in workers."""
        steps = evidence.get(Steps)
        rows = [row for row in rows_of(evidence, RereadRow) if row.batches and steps.loud]
        return cls(tuple(_line(evidence, row, steps) for row in rows))


def _line(evidence: Evidence, row: RereadRow, steps: Steps) -> RereadFile:
    in_worker = row.where == "worker"
    us = row.us / (row.batches if in_worker else len(steps.loud))
    of_batch = row.us / row.fetch_us if row.fetch_us else 0.0
    return RereadFile(
        evidence.recording.site(row.at),
        row.name,
        row.path,
        row.bytes,
        row.n / row.batches,
        row.again / row.n if row.n else 0.0,
        us,
        of_batch if in_worker else steps.share_of_step(us),
        in_worker,
        len(steps.loud),
    )
