"""Modules that are called several times in a row, each time with a batch of its own."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import ForwardsRow
from .separate_calls import separate_calls


@dataclass(frozen=True)
class InRow:
    """``sites`` call a ``module`` one after the other with tensors of at most ``elements`` numbers;
    ``share`` of the time of the middle watched step.
    """

    sites: tuple[Site, ...]
    module: str
    elements: int
    share: float
    steps: int


@dataclass(frozen=True)
class ForwardsInRow(Table):
    """Those whose source shows that no call needs what another gave; ``steps`` were watched."""

    parts: ClassVar[tuple[str, ...]] = ("forwards",)

    steps: int = 0
    rows: tuple[InRow, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> ForwardsInRow:
        """From the precision pass."""
        steps = sum(
            each["steps"]
            for each in evidence.recording.manifest.get("passes", ())
            if each["name"] == "numbers"
        )
        alike: defaultdict[tuple[tuple[int, ...], str], list[ForwardsRow]] = defaultdict(list)
        for row in rows_of(evidence, ForwardsRow):
            alike[tuple(row.lines), row.module].append(row)
        found = (_in_row(evidence, rows) for rows in alike.values())
        source = evidence.get(Source)
        return cls(steps, tuple(each for each in found if separate_calls(source, each.sites)))

    def worth(self, share: float, elements: int) -> Iterator[InRow]:
        """Those on every step, of small tensors, that take so much of it."""
        for each in self.rows:
            if each.steps >= self.steps and each.share >= share and each.elements <= elements:
                yield each


def _in_row(evidence: Evidence, rows: list[ForwardsRow]) -> InRow:
    return InRow(
        tuple(evidence.recording.site(number) for number in rows[0].lines),
        rows[0].module,
        max(row.elements for row in rows),
        statistics.median(row.us / (row.step_us or math.inf) for row in rows),
        len({row.step for row in rows}),
    )
