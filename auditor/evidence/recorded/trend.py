"""Does a series rise? Theil-Sen slope with Sen's 95 % interval, which outliers do not bend."""

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
    def returned(self) -> float:
        """Share of all rises that falls took back: near 0 in a leak, much where memory comes and
        goes in pieces of another size on each step.
        """
        changes = [after - before for before, after in pairwise(self.values)]
        up = sum(each for each in changes if each > 0)
        return -sum(each for each in changes if each < 0) / up if up > 0 else 0.0

    @property
    def evenness(self) -> float:
        """Median change between steps, as a share of the median slope: 1 where each step adds as
        much, near 0 where a few steps add nearly all.
        """
        whole = _median_slope(self.values[:: -(-len(self.values) // MOST)]) if self.values else 0.0
        changes = [after - before for before, after in pairwise(self.values)]
        return median(changes) / whole if whole > 0 else 0.0

    @property
    def last_third(self) -> float:
        """Share of the growth that fell in the last third of the series: 1/3 if steady, near 0 if
        it levelled off. By median slopes between its steps, which a first jump or one noisy step
        does not bend.
        """
        values = self.values[:: -(-len(self.values) // MOST)] if self.values else ()
        whole = _median_slope(values)
        late = _median_slope(values[-1 - max(4, (len(values) - 1) // 3) :])
        return late / whole / 3 if self.total > 0 and whole > 0 else 0.0

    @property
    def noise(self) -> float:
        """Median distance of the values from their straight line: not bent by a single one."""
        slope = _median_slope(self.values[:MOST])
        rest = [value - slope * step for step, value in enumerate(self.values)]
        middle = median(rest) if rest else 0.0
        return median(abs(each - middle) for each in rest) if rest else 0.0

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


def _median_slope(values: Sequence[float]) -> float:
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(enumerate(values), 2)]
    return median(slopes) if slopes else 0.0


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
