"""On which steps something happened: on all of them, at intervals, now and then, in phases."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from statistics import median
from typing import Literal

from auditor import amounts
from auditor.amounts import digits
from auditor.recordings.schema.sync import BURST

FEWEST_STEPS = 3
"""Below this many audited steps nothing is claimed about a pattern."""


@dataclass(frozen=True)
class StepPattern:
    """``seen`` are the steps it was seen on, ascending and each once; ``of`` is how many steps were
    watched. ``times`` says how often on each of them; empty: once, as far as is known.
    """

    seen: tuple[int, ...]
    of: int
    times: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{len(self.seen)} of {self.of} steps" if self.of != 1 else "the only step"

    @property
    def share(self) -> float:
        """Share of the watched steps."""
        return len(self.seen) / self.of if self.of else 0.0

    @property
    def interval(self) -> int | None:
        """The constant distance between sightings in steps; None if it varies or cannot be told."""
        gaps = {after - before for before, after in pairwise(self.seen)}
        return gaps.pop() if len(gaps) == 1 else None

    @cached_property
    def cycles(self) -> range:
        """The steps of whole cycles, where it comes in phases: in bursts some steps apart, at least
        twice, and still as often when the watching began and ended. Else no steps.
        """
        longest = max((after - before for before, after in pairwise(self.seen)), default=1)
        first, last = (self.seen[0], self.seen[-1]) if self.seen else (0, 0)
        goes_on = first < longest and self.of - last <= longest
        bursts = longest > 1 and min(self.times, default=0) >= BURST
        return range(first, last) if bursts and goes_on else range(0)

    def mean(self, amounts: Iterable[tuple[int, float]]) -> float:
        """Single steps (number, amount) averaged: over whole cycles in phases, else over all."""
        over = self.cycles or range(self.of)
        return sum(amount for step, amount in amounts if step in over) / max(1, len(over))

    @property
    def often(self) -> bool:
        """True if it comes in phases, in all as often as if it came once in each step."""
        return self.mean(zip(self.seen, self.times, strict=False)) >= 1.0 and bool(self.cycles)

    @property
    def burst(self) -> bool:
        """True if it was seen on one step alone, and then at least as often as if it came once in
        each step: after how many steps it comes again is not known.
        """
        return len(self.seen) == 1 and max(self.times, default=0) >= max(BURST, self.of)

    @property
    def phases(self) -> str:
        """How often it comes where it comes in phases, to follow a sentence; else empty."""
        if self.burst:
            first = " (the first of them: it may be set-up)" if self.seen == (0,) else ""
            return f"; {self.times[0]} times in that step{first}"
        if not self.often:
            return ""
        each = sum(self.times) / len(self.times)
        per_step = self.mean(zip(self.seen, self.times, strict=True))
        return f"; {digits(each)} times in each of those, {digits(per_step)} per step on average"

    def usual(self, share: float) -> bool:
        """Seen on at least ``share`` of enough steps, or comes in phases, and as often."""
        return self.of >= FEWEST_STEPS and (self.share >= share or self.often)

    def weight(
        self, *, usual: float, rare: float, interval: int, enough: int
    ) -> Literal["usual", "sometimes"] | None:
        """How often it happens, as far as it can be told; None if it is rare, rate-limited or
        unclear.

        ``usual``: on at least this share of the steps, or in phases and as often. ``sometimes``: on at least ``rare`` of them,
        or every 2nd to ``interval - 1``-th step, or in one burst. With fewer than ``enough`` steps only *on every
        step* can be told.
        """
        if self.of < enough:
            return "usual" if self.of >= FEWEST_STEPS and self.share == 1.0 else None
        if self.often or self.burst:
            return "usual" if self.often else "sometimes"
        gap = self.interval
        if self.share < rare or len(self.seen) == 1:
            return None
        if gap is not None and gap > 1:
            return "sometimes" if gap < interval else None
        return "usual" if self.share >= usual else "sometimes"


def step_pattern(seen: set[int], of: int) -> StepPattern:
    """The pattern from one pass's step numbers, without incomplete steps."""
    return StepPattern(tuple(sorted(step for step in seen if step < of)), of)


def counted_pattern(times: Iterable[tuple[int, int]], of: int) -> StepPattern:
    """The pattern of (step, times) pairs; several pairs of one step add up."""
    total: Counter[int] = Counter()
    for step, n in times:
        total[step] += n
    seen = step_pattern(set(total), of).seen
    return StepPattern(seen, of, tuple(total[step] for step in seen))


# -- trend -----------------------------------------------------------------------------------------
# Does a series rise? Theil-Sen slope with Sen's 95 % interval, which outliers do not bend.


FEWEST = 8
"""Sen's interval is a normal approximation: not used below this many values."""
MOST = 400
"""Longer series are thinned to about this many values: slopes grow with its square."""
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
        """Share of all rises that falls took back: near 0 in a leak, much where sizes vary."""
        changes = [after - before for before, after in pairwise(self.values)]
        up = sum(each for each in changes if each > 0)
        return -sum(each for each in changes if each < 0) / up if up > 0 else 0.0

    @property
    def evenness(self) -> float:
        """Median change between steps by median slope: 1 if steady, near 0 if few add all."""
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
            "steps with growth",
            f"{amounts.percent(self.rises)}",
        )


def _median_slope(values: Sequence[float]) -> float:
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(enumerate(values), 2)]
    return median(slopes) if slopes else 0.0


def sen_slope(values: Sequence[float]) -> Slope | None:
    """Theil-Sen slope, its 95 % interval by Kendall's variance (Sen 1968; ties: Gilbert 1987)."""
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
