"""Checkpoints that the step wrote while its times were taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from auditor.batch_means import Estimate, of_separate
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema import SaveRow


@dataclass(frozen=True)
class Save:
    """One call of ``torch.save``: ``us`` that it took, ``path`` that it wrote to (None: a buffer or
    an open file).

    ``replaced``: there was a file with something in it. ``size`` in bytes, None where it is not
    known.
    """

    site: Site
    step: int
    us: float
    path: str | None = None
    replaced: bool = False
    size: int | None = None


@dataclass(frozen=True)
class SavingLine:
    """A line that saves, with all of its saves."""

    site: Site
    saves: tuple[Save, ...]
    pattern: StepPattern

    @property
    def us(self) -> float:
        """Time in all of them."""
        return sum(save.us for save in self.saves)

    @property
    def price(self) -> Estimate | None:
        """Us of each step that saves take, with the interval over the saves; None of too few of
        them.
        """
        each = of_separate([save.us for save in self.saves])
        often = self.per_step
        return (
            None
            if each is None
            else Estimate(often * each.value, often * each.low, often * each.high)
        )

    @property
    def per_step(self) -> float:
        """Saves in each step, on average."""
        return len(self.saves) / max(1, self.pattern.of)


@dataclass(frozen=True)
class Saves(Table):
    """Saves of the quiet pass, whose ``steps`` took ``step_us`` together, waiting for a processor
    left out.
    """

    parts: ClassVar[tuple[str, ...]] = ("saves", "steps")

    steps: int = 0
    step_us: float = 0.0
    each: tuple[Save, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> Saves:
        """From the quiet pass; saves of a step that did not complete are left out."""
        quiet = evidence.get(Steps).quiet
        rows = [row for row in rows_of(evidence, SaveRow) if row.step < len(quiet)]
        each = (
            Save(evidence.recording.site(r.at), r.step, r.us, r.path, r.replaced, r.bytes)
            for r in rows
        )
        return cls(len(quiet), sum(step.own_us for step in quiet), tuple(each))

    def lines(self) -> Iterator[SavingLine]:
        """Lines that save, by file and line."""
        for site, saves in groupby(sorted(self.each, key=_place), key=lambda save: save.site):
            here = tuple(saves)
            yield SavingLine(site, here, step_pattern({save.step for save in here}, self.steps))


def _place(save: Save) -> tuple[str, int]:
    return save.site.file, save.site.line
