"""Ratios of step times with intervals: over pairs of runs, and between recordings."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median, stdev

from auditor.batch_means import BUSY, RUN_TO_RUN, student_t
from auditor.evidence.recorded.steps import Steps, queued_share
from auditor.evidence.table import Evidence

RESAMPLES = 2000
"""Draws of each bootstrap: the 99.5 % quantile then rests on ten draws."""

PAIRS_CONFIDENCE = 0.99
"""Nominal confidence of :func:`of_pairs`. Runs are added until the interval excludes 1, so it is
looked at again and again; with 0.99 at each look all looks together cry wolf in at most 5 % of
comparisons of a program with itself (``tests/extensions/verify/test_intervals.py`` counts them; Pocock 1977
has 0.0106 for ten looks)."""

LEAST_PAIRS = 3
"""Pairs below which there is no interval: two do not show their own spread."""

MOST_PAIRS = 12
"""Pairs after which a patch whose effect is not proven counts as the same: ``PAIRS_CONFIDENCE``
holds for this many looks, and an effect that twelve pairs do not show is small.
"""

CONFIDENCE = 0.95
"""Confidence of :func:`of_recordings`: 2.5 % on the side of a regression."""

FEW_RUNS = 5
"""Runs of one side below which their own spread is not taken for the whole of it."""

BLOCK_SHARE = 0.2
"""Length of a block of steps drawn together, as a share: neighbours are slow together."""


@dataclass(frozen=True)
class RunTimes:
    """Times of one run's steps in us, in order; ``busy`` is the share of its time in which others
    had the processor.

    ``first`` says how many steps the program had made before.
    """

    us: tuple[float, ...]
    busy: float = 0.0
    first: int = 0


@dataclass(frozen=True)
class Interval:
    """A ratio of step times, after to before (below 1: faster), and between what it lies."""

    ratio: float
    low: float
    high: float

    @property
    def excludes_one(self) -> bool:
        """True if a difference is proven."""
        return self.low > 1.0 or self.high < 1.0


def of_pairs(before: Sequence[float], after: Sequence[float]) -> Interval | None:
    """Interval of the typical ratio of runs that were made in pairs; None for fewer than
    ``LEAST_PAIRS``.

    Bootstrap over pairs of the mean logarithm of their ratio, stretched to what Student's t asks of
    so few (the expanded percentile interval of Hesterberg 2015, which a plain bootstrap of three
    values falls far short of). What drifts from pair to pair cancels within each.
    """
    logs = [math.log(b / a) for a, b in zip(before, after, strict=True)]
    n = len(logs)
    if n < LEAST_PAIRS:
        return None
    middle = fmean(logs)
    draw = random.Random(n)  # noqa: S311 - a bootstrap, repeatable on purpose
    drawn = sorted(fmean(draw.choices(logs, k=n)) for _ in range(RESAMPLES))
    tail, expanded = (1 - PAIRS_CONFIDENCE) / 2, student_t(PAIRS_CONFIDENCE, n - 1)
    stretch = expanded / NormalDist().inv_cdf(1 - tail) * math.sqrt(n / (n - 1))
    # with few pairs the bootstrap's own tails are cut off
    least = expanded * stdev(logs) / math.sqrt(n)
    below = max(stretch * (middle - _quantile(drawn, tail)), least)
    above = max(stretch * (_quantile(drawn, 1 - tail) - middle), least)
    return Interval(math.exp(middle), math.exp(middle - below), math.exp(middle + above))


def of_recordings(before: Sequence[RunTimes], after: Sequence[RunTimes]) -> Interval | None:
    """Interval of the ratio of median step times of two sides, each one or more runs.

    Each draw takes runs again (where there are several), blocks of neighbouring steps within each,
    and their median. A side of fewer than ``FEW_RUNS`` gets, on top of that, the ``unsteadiness``
    that so few cannot show. None if a side has no steps.
    """
    if not before or not after or not all(run.us for run in (*before, *after)):
        return None
    draw = random.Random(len(before) + len(after))  # noqa: S311 - a bootstrap, repeatable on purpose
    drawn = sorted(_drawn(after, draw) - _drawn(before, draw) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    middle = _middle(after) - _middle(before)
    return Interval(
        math.exp(middle), math.exp(_quantile(drawn, tail)), math.exp(_quantile(drawn, 1 - tail))
    )


def _middle(runs: Sequence[RunTimes]) -> float:
    return fmean(math.log(median(run.us)) for run in runs)


def _drawn(runs: Sequence[RunTimes], draw: random.Random) -> float:
    n = len(runs)
    again = fmean(
        math.log(median(_blocks(run.us, draw)))
        for run in (draw.choices(runs, k=n) if n > 1 else runs)
    )
    if n > 1:
        middle = _middle(runs)
        again = middle + math.sqrt(n / (n - 1)) * (again - middle)
    if n < FEW_RUNS:  # how far the medians may be from other runs' (deviation of the logarithm)
        unsteady = sum((RUN_TO_RUN + BUSY * run.busy) ** 2 for run in runs)
        again += draw.gauss(0.0, math.sqrt(unsteady) / n)
    return again


def _blocks(run: Sequence[float], draw: random.Random) -> list[float]:
    """As many steps as the run has, in blocks, joined end to begin: all equally likely."""
    length = max(1, round(BLOCK_SHARE * len(run)))
    steps: list[float] = []
    while len(steps) < len(run):
        start = draw.randrange(len(run))
        steps.extend(run[(start + i) % len(run)] for i in range(length))
    return steps[: len(run)]


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


# -- the steps of a recording ----------------------------------------------------------------------


def quiet_run(evidence: Evidence) -> RunTimes:
    """The quiet steps in order; without any where the recording holds none.

    Where the host's clock timed them, the time that the step's thread was ready and something else
    had the processor (``queued_us``) is taken off, and its share is how busy the machine was: on a
    shared machine that wait multiplied the median of single runs of the same program by up to four
    (docs/log/compare.md). Device events are not held up by it.
    """
    if evidence.recording.device.simulated or not evidence.has("steps"):
        return RunTimes(())
    steps = evidence.get(Steps).quiet
    before = sum(
        each["steps"]
        for each in evidence.recording.manifest.get("passes") or ()
        if each["name"] == "warmup"
    )
    return RunTimes(tuple(max(step.own_us, 1e-3) for step in steps), queued_share(steps), before)
