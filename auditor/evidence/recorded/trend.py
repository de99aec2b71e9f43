"""Does a series rise? Theil-Sen slope with Sen's 95 % interval, which outliers and jumps do not
bend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

from auditor import amounts

FEWEST = 8
"""Sen's interval is a normal approximation: not used below this many values."""
MOST = 400
"""Longer series are thinned to about this many values: the number of slopes grows with its
square.
"""
Z95 = 1.959964


@dataclass(frozen=True)
class Slope:
    """Median slope per step, and its 95 % interval."""

    per_step: float
    low: float
    high: float


@dataclass(frozen=True)
class Trend:
    """A series with one value for each step."""

    values: tuple[float, ...] = ()

    @property
    def slope(self) -> Slope | None:
        """Its slope; None when there are too few values to tell."""
        return sen_slope(self.values)

    @property
    def total(self) -> float:
        """Growth from the first value to the last."""
        return self.values[-1] - self.values[0] if self.values else 0.0

    @property
    def rises(self) -> float:
        """Share of the steps after which the value was larger than before."""
        return sum(after > before for before, after in pairwise(self.values)) / max(
            1, len(self.values) - 1
        )

    @property
    def last_third(self) -> float:
        """Share of the growth that fell in the last third of the series: 1/3 if steady, near 0 if
        it levelled off.
        """
        if self.total <= 0:
            return 0.0
        return (self.values[-1] - self.values[-1 - (len(self.values) - 1) // 3]) / self.total

    @property
    def peak(self) -> float:
        """Largest value."""
        return max(self.values, default=0.0)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report, for a series of bytes."""
        return ("grown", f"{amounts.size(self.total)} in {len(self.values)} steps"), (
            "steps that rose",
            f"{amounts.percent(self.rises)}",
        )


def sen_slope(values: Sequence[float]) -> Slope | None:
    """Theil-Sen slope of equally spaced values, its 95 % interval by Kendall's variance (Sen 1968;
    ties as in Gilbert 1987).
    """
    if len(values) < FEWEST:
        return None
    stride = -(-len(values) // MOST)
    points = list(enumerate(values))[::stride]
    slopes = sorted((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points, 2))
    reach = Z95 * _kendall_variance([y for _, y in points]) ** 0.5
    low = max(0, round((len(slopes) - reach) / 2) - 1)
    high = min(len(slopes) - 1, round((len(slopes) + reach) / 2))
    return Slope(median(slopes), slopes[low], slopes[high])


def _kendall_variance(values: Sequence[float]) -> float:
    """Variance of Kendall's S under no trend, corrected for ties."""

    def term(n: int) -> int:
        return n * (n - 1) * (2 * n + 5)

    ties = sum(term(count) for count in Counter(values).values())
    return (term(len(values)) - ties) / 18
