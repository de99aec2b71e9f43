"""Schedulers of learning rates, how often they were stepped, and how many batches an epoch has."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.batches import Batches
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import SchedulerRow

MOST_OF_THEM = 0.8
"""Share of the batches that the loader of the training must have given."""


@dataclass(frozen=True)
class Scheduled:
    """One scheduler: stepped ``calls`` times while its optimizer stepped ``steps`` times, and at
    least ``apart`` of these between two calls; ``epoch`` calls since it was made.
    ``steps_of_an_epoch``: of its optimizer, for one epoch of the loader; None where no loader, or
    none alone, gave the batches.

    ``epoch_of``, ``period`` and ``gone`` are counts of calls: of the epoch that it was made for,
    until the rate has gone down and up again, until it is at most a thousandth of the first.
    """

    site: Site
    name: str
    calls: int
    steps: int
    apart: int
    epoch: int
    steps_of_an_epoch: int | None = None
    epoch_of: int | None = None
    period: int | None = None
    gone: int | None = None

    @property
    def each_step(self) -> bool:
        """Whether it is stepped with its optimizer: no two calls without a step in between, and no
        more than one step.
        """
        return self.apart == 1 and self.steps == self.calls - 1


@dataclass(frozen=True)
class SchedulerSteps(Table):
    """All of them."""

    parts: ClassVar[tuple[str, ...]] = ("schedulers", "batches", "loaders", "steps")

    each: tuple[Scheduled, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> SchedulerSteps:
        """From all passes up to the loud one."""
        site = evidence.recording.site
        length, taken = _training_loader(evidence.get(Batches))
        found = []
        for row in rows_of(evidence, SchedulerRow):
            known = length and taken and row.in_pass
            found.append(
                Scheduled(
                    site(row.at),
                    row.name,
                    row.calls,
                    row.steps,
                    row.apart,
                    row.epoch,
                    length * row.in_pass // taken if known else None,
                    row.epoch_of,
                    row.period,
                    row.gone,
                )
            )
        return cls(tuple(found))


def _training_loader(batches: Batches) -> tuple[int, int]:
    """Batches of an epoch of the loader that gave nearly all batches of the loud pass, and how many
    it gave; 0 where there is none, or it has no length.
    """
    gave: Counter[int] = Counter()
    for each in batches.loud:
        gave[each.loader] += each.batches
    for number, n in gave.most_common(1):
        loader = next((each for each in batches.loaders if each.number == number), None)
        if loader is not None and n >= MOST_OF_THEM * gave.total():
            return loader.length or 0, n
    return 0, 0
