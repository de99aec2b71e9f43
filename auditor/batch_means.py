"""Intervals of what steps of one run show, whose neighbours are alike: batch means, Student's t."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, stdev

CONFIDENCE = 0.99
"""Nominal confidence of an interval over batches. Batches of ten steps still depend on each other
where slow steps come together: at a correlation of 0.8 between neighbours 95 % remain of it
(``tests/test_batch_means.py`` counts)."""

SEPARATE = 0.95
"""Confidence of :func:`of_separate`, whose values do not depend on each other."""

FEWEST_BATCHES, MOST_BATCHES, LENGTH = 5, 10, 10
"""Batches have this length where the run allows ``FEWEST_BATCHES`` of them: fewer leave too few
degrees of freedom, and more than ``MOST_BATCHES`` gain nothing (Schmeiser 1982, Batch size effects
in the analysis of simulation output)."""

LEAST_SEPARATE = 3
"""Separate events below which there is no interval: two do not show their own spread."""

RUN_TO_RUN = 0.025
"""How much the median step of one program differs from process to process on a quiet machine
(standard deviation of its logarithm): another place in memory, another clock rate. One run cannot
show it. docs/log/compare.md has the runs behind this."""

BUSY = 0.25
"""What a median may be off for each share of the time that others had the processor (standard
deviation, as a share of it): they also take caches and the other half of the core while the step
runs. Medians of 90 runs of three programs rose by 0.3 times that share (docs/log/compare.md)."""


@dataclass(frozen=True)
class Estimate:
    """A value and between what it lies, all in the unit of what was measured."""

    value: float
    low: float
    high: float

    @property
    def proven(self) -> bool:
        """True if the interval lies above zero."""
        return self.low > 0.0


def mean_of(values: Sequence[float]) -> Estimate | None:
    """The mean of a series in its order; None for fewer than ``FEWEST_BATCHES`` values.

    Batch means (Conway 1963; Law and Kelton, Simulation Modeling and Analysis, 9.5.3): the series
    is cut into batches, whose means are nearly independent, and Student's t over these gives the
    interval.
    """
    if len(values) < FEWEST_BATCHES:
        return None
    means = _batches(values, fmean)
    reach = student_t(CONFIDENCE, len(means) - 1) * _error(means)
    middle = fmean(values)
    return Estimate(middle, middle - reach, middle + reach)


def median_of(values: Sequence[float], *, busy: float = 0.0) -> Estimate | None:
    """The median of a series in its order, by the medians of its batches; None for fewer than
    ``FEWEST_BATCHES`` values.

    ``busy`` is the share of the time in which others had the processor; it widens the interval by
    ``BUSY``.
    """
    return difference(values, (0.0,) * FEWEST_BATCHES, busy=(busy, 0.0))


def difference(
    more: Sequence[float], less: Sequence[float], *, busy: tuple[float, float] = (0.0, 0.0)
) -> Estimate | None:
    """The median of one series less that of another; None if either has fewer than
    ``FEWEST_BATCHES`` values.

    Medians of the batches of each, and Welch's t (1947) with the degrees of freedom of
    Satterthwaite (1946): the two may spread unequally. What ``busy`` adds for each series is taken
    as known, not as estimated from the batches.
    """
    if min(len(more), len(less)) < FEWEST_BATCHES:
        return None
    series, medians = (more, less), [_batches(each, median) for each in (more, less)]
    sampled = [_error(each) ** 2 for each in medians]
    known = sum(
        (BUSY * share * median(each)) ** 2 for share, each in zip(busy, series, strict=True)
    )
    whole, middle = sum(sampled) + known, median(more) - median(less)
    if whole <= 0.0:
        return Estimate(middle, middle, middle)
    loose = sum(part**2 / (len(each) - 1) for part, each in zip(sampled, medians, strict=True))
    freedom = min(1000, math.floor(whole**2 / loose)) if loose > 0.0 else 1000
    reach = student_t(CONFIDENCE, max(1, freedom)) * math.sqrt(whole)
    return Estimate(middle, middle - reach, middle + reach)


def of_separate(durations: Sequence[float]) -> Estimate | None:
    """The mean of events that lie far apart (saves of a checkpoint); None for fewer than
    ``LEAST_SEPARATE``, or one of no length.

    Student's t over logarithms, put around the arithmetic mean: durations differ by factors, and
    none is below zero.
    """
    if len(durations) < LEAST_SEPARATE or min(durations) <= 0.0:
        return None
    reach = student_t(SEPARATE, len(durations) - 1) * _error([math.log(each) for each in durations])
    middle, factor = fmean(durations), math.exp(min(reach, 20.0))
    return Estimate(middle, middle / factor, middle * factor)


def _batches(values: Sequence[float], of: Callable[[Sequence[float]], float]) -> list[float]:
    number = max(FEWEST_BATCHES, min(MOST_BATCHES, len(values) // LENGTH))
    ends = [round(each * len(values) / number) for each in range(number + 1)]
    return [of(values[begin:end]) for begin, end in pairwise(ends)]


def _error(values: Sequence[float]) -> float:
    return stdev(values) / math.sqrt(len(values))


def student_t(confidence: float, freedom: int) -> float:
    """The t that a Student variable with ``freedom`` degrees stays below with that probability."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        high *= 2
    return _bisect(lambda t: _within(t, freedom) < confidence, low, high)


def _bisect(below: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return (low + high) / 2


def _within(t: float, freedom: int) -> float:
    """P(|T| < t) for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine**2 * ((k - 1) / k)
        total += term
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total
