"""Gradient norms, step after step: does one leave its range for good?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import NormRow

FEWEST = 10
"""Norms below which nothing is said about a trend."""

PARTS = 5
"""A series is compared by fifths: medians of them, which single spikes do not move."""


@dataclass(frozen=True)
class NormSeries:
    """Norms of one optimizer's gradients, by the step of the run, in order. ``site`` is where it
    steps.
    """

    site: Site | None
    points: tuple[tuple[int, float], ...]
    clipped: bool = False
    rates: tuple[float, ...] = ()
    """Learning rates at the points; empty where they are not known."""
    base: float = 0.0
    """The rate that a scheduler found; 0 without one."""

    def rose(self, fold: float) -> tuple[float, float] | None:
        """The first and the highest learning rate, where a scheduler raised it so many times, and
        so many times above the one that it found.
        """
        if not self.rates or self.base <= 0 or self.rates[0] <= 0:
            return None
        first, most = self.rates[0], max(self.rates)
        return (first, most) if most >= fold * max(first, self.base) else None

    @property
    def finite(self) -> tuple[tuple[int, float], ...]:
        """Those before the first that is not finite."""
        bad = next(
            (n for n, (_, norm) in enumerate(self.points) if not math.isfinite(norm)),
            len(self.points),
        )
        return self.points[:bad]

    @property
    def growth(self) -> Growth | None:
        """How it grew; None with too few points, or where a norm is 0 (there is no gradient, or not
        yet).
        """
        points = [(step, norm) for step, norm in self.finite if norm > 0]
        if len(points) < FEWEST or len(points) < 0.9 * len(self.finite):
            return None
        size = len(points) // PARTS
        halfway = (points[0][0] + points[-1][0]) / 2  # by steps: not all passes look at each
        near = next(n for n, (step, _) in enumerate(points) if step >= halfway)
        middle = min(near, len(points) - 2 * size)
        logs = [math.log10(norm) for _, norm in points]
        first, half, last = (
            median(part) for part in (logs[:size], logs[middle : middle + size], logs[-size:])
        )
        apart = median(step for step, _ in points[-size:]) - median(
            step for step, _ in points[middle : middle + size]
        )
        late = logs[middle:]
        pairs = list(combinations(late, 2))
        rising = sum(after > before for before, after in pairs) / len(pairs)
        return Growth(
            points[0][0],
            points[-1][0],
            10**first,
            10**last,
            last - first,
            last - half,
            apart,
            rising,
        )


@dataclass(frozen=True)
class Growth:
    """From the typical norm of the first fifth to that of the last.

    ``decades`` and ``late_decades`` are powers of ten, over all of it and since its middle,
    ``late_steps`` before; ``rising`` is the share of pairs in its second half of which the later is
    the larger (0.5: no trend).
    """

    first_step: int
    last_step: int
    before: float
    after: float
    decades: float
    late_decades: float
    late_steps: float
    rising: float

    @property
    def steps(self) -> int:
        """Steps from the first to the last."""
        return self.last_step - self.first_step


@dataclass(frozen=True)
class GradientNorms(Table):
    """One series for each optimizer."""

    parts: ClassVar[tuple[str, ...]] = ("norms",)
    of_values: ClassVar[bool] = True
    absent: ClassVar[Mapping[str, str]] = {"norms": "no optimizer stepped while the auditor looked"}

    series: tuple[NormSeries, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> GradientNorms:
        """From all passes that were watched."""
        rows = sorted(rows_of(evidence, NormRow), key=lambda row: (row.optimizer, row.global_step))
        return cls(tuple(_series(evidence, rows)))


def _series(evidence: Evidence, rows: list[NormRow]) -> Iterator[NormSeries]:
    for number in sorted({row.optimizer for row in rows}):
        mine = [row for row in rows if row.optimizer == number]
        at = next((row.at for row in mine if row.at is not None), None)
        points = tuple((row.global_step, float(row.norm)) for row in mine)
        yield NormSeries(
            None if at is None else evidence.recording.site(at),
            points,
            any(row.clipped for row in mine),
            tuple(row.rate for row in mine),
            mine[-1].base,
        )
