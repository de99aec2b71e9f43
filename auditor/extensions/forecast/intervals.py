"""Intervals from how far predictions were off on recordings that no fit had seen.

Recordings of one origin are alike, so they count as one: each group is left out of every fit that
judges it and gives one ratio of measured to predicted time. Of n such ratios, the k-th smallest and
the k-th largest hold a further one with probability 1 - 2k/(n + 1) (conformal prediction): that is
true of any distribution, as far as the next program is one like those in the groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NOMINAL = 0.8
LEAST_RATIO = 2.4
"""Upper end over lower end, at least, until a set that nothing was tuned on confirms less."""
LEAST_GROUPS = 9
"""With fewer the nominal share cannot be reached at all: 1 - 2/(n + 1) is below it."""


@dataclass(frozen=True)
class Spread:
    """Factors by which a measured time lies below and above a predicted one."""

    lower: float
    upper: float

    def doubled(self) -> Spread:
        """Twice as wide, as ratios count: for a GPU that nothing was fitted on."""
        return Spread(self.lower**2, self.upper**2)


def spread_of(ratios: Sequence[float], nominal: float = NOMINAL) -> Spread:
    """The interval of one more ratio, from one ratio a group; never narrower than
    :data:`LEAST_RATIO`, which is shared between both ends. 1 lies in it.
    """
    ordered = sorted(ratios)
    number = len(ordered)
    rank = math.floor((1 - nominal) / 2 * (number + 1) + 1e-9)
    if rank < 1:
        raise ValueError(f"{number} groups are too few for an interval of {nominal:.0%}")
    return widened(min(ordered[rank - 1], 1.0), max(ordered[number - rank], 1.0))


def widened(lower: float, upper: float, least: float = LEAST_RATIO) -> Spread:
    """Both ends moved apart by the same factor until their ratio is at least ``least``."""
    missing = math.sqrt(max(least / (upper / lower), 1.0))
    return Spread(lower / missing, upper * missing)


def ratio_of_groups(ratios: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """One ratio a group: the median of its recordings' logarithms."""
    return {
        group: math.exp(_median([math.log(each) for each in found]))
        for group, found in ratios.items()
    }


def coverage(ratios: Mapping[str, Sequence[float]], nominal: float = NOMINAL) -> float:
    """Share of recordings, each group with the same weight, inside the interval that the other
    groups give.
    """
    middle = ratio_of_groups(ratios)
    shares = []
    for group, found in ratios.items():
        spread = spread_of([each for other, each in middle.items() if other != group], nominal)
        shares.append(sum(spread.lower <= each <= spread.upper for each in found) / len(found))
    return sum(shares) / len(shares)


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
