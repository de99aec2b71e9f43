"""Intervals by order statistics over groups."""

from __future__ import annotations

import pytest

from auditor.extensions.forecast.intervals import (
    LEAST_GROUPS,
    LEAST_RATIO,
    Spread,
    coverage,
    ratio_of_groups,
    spread_of,
    widened,
)

WIDE = [0.2, 0.3, 0.5, 0.7, 0.9, 1.1, 1.5, 2.0, 4.0]


def test_nine_groups_give_their_extremes() -> None:
    """floor(0.1 * 10) is 1: the smallest and the largest."""
    assert spread_of(WIDE) == Spread(0.2, 4.0)


def test_nineteen_groups_give_the_second() -> None:
    ratios = [1 + 0.1 * step for step in range(-9, 0)] + [1 + step for step in range(10)]
    ordered = sorted(ratios)
    assert spread_of(ratios) == Spread(ordered[1], ordered[-2])


def test_fewer_groups_cannot_reach_the_nominal_share() -> None:
    assert len(WIDE) == LEAST_GROUPS
    with pytest.raises(ValueError, match="8 groups are too few"):
        spread_of(WIDE[:-1])
    assert spread_of(WIDE[:4], nominal=0.5) == Spread(0.2 / factor(0.2, 1), factor(0.2, 1))


def factor(lower: float, upper: float) -> float:
    return max(LEAST_RATIO / (upper / lower), 1) ** 0.5


def test_an_interval_holds_its_own_prediction() -> None:
    found = spread_of([2 + 0.1 * step for step in range(20)])
    assert found.lower <= 1 < found.upper


@pytest.mark.parametrize(
    ("lower", "upper", "moved"), [(0.5, 1.2, False), (0.5, 1.21, False), (0.5, 1.19, True)]
)
def test_no_interval_is_narrower_than_was_earned(lower, upper, moved) -> None:
    found = widened(lower, upper)
    assert found.upper / found.lower == pytest.approx(max(upper / lower, LEAST_RATIO))
    assert (found.lower < lower) == moved
    assert found.upper * found.lower == pytest.approx(lower * upper)  # both ends alike


def test_doubling_is_of_ratios() -> None:
    assert Spread(0.5, 3.0).doubled() == Spread(0.25, 9.0)


def test_a_group_counts_once() -> None:
    found = ratio_of_groups({"one": [2.0, 8.0], "other": [0.5, 1.0, 100.0]})
    assert found == pytest.approx({"one": 4.0, "other": 1.0})


def test_coverage_leaves_each_group_out() -> None:
    """Ten groups: the extreme one on either side lies outside what the other nine give."""
    ratios = {str(step): [3.0 ** (step - 4.5)] for step in range(10)}
    assert coverage(ratios) == pytest.approx(0.8)


def test_coverage_weighs_groups_and_not_recordings() -> None:
    ratios = {str(step): [1.0] for step in range(10)} | {"odd": [1.0, 50.0, 50.0, 50.0]}
    assert coverage(ratios) == pytest.approx((10 + 0.25) / 11)
