"""Gradients of micro-batches that are added up before an optimizer steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import MicroBatchRow


@dataclass(frozen=True)
class AddedUp:
    """A line whose backward passes add up gradients for an optimizer: in how many of its steps so,
    and in how many of these all passes were means over batches of a loader that nothing divides.
    """

    site: Site
    optimizer: str
    steps: int
    undivided: int
    n: int
    """Passes of most of these steps."""


@dataclass(frozen=True)
class MicroBatches(Table):
    """Those of the instrumented pass."""

    parts: ClassVar[tuple[str, ...]] = ("micro_batches",)

    each: tuple[AddedUp, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> MicroBatches:
        """By line and optimizer."""
        lines: dict[tuple[int, str], list[MicroBatchRow]] = {}
        for row in rows_of(evidence, MicroBatchRow):
            lines.setdefault((row.at, row.optimizer), []).append(row)
        site = evidence.recording.site
        return cls(
            tuple(
                AddedUp(
                    site(at),
                    name,
                    len(rows),
                    sum(row.means == row.n <= row.batches and not row.changed for row in rows),
                    Counter(row.n for row in rows).most_common(1)[0][0],
                )
                for (at, name), rows in sorted(lines.items())
            )
        )
