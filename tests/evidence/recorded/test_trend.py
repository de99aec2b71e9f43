"""Trends: Sen's slope against its definition, and shares of a growth."""

from itertools import combinations
from statistics import median

import pytest

from auditor.evidence.recorded.step_pattern import (
    FEWEST,
    MOST,
    Slope,
    Trend,
    _kendall_variance,
    sen_slope,
)


def test_the_slope_is_the_median_of_all_pairs_with_sens_interval():
    """Of Gilbert's formula, by hand: eight values, one tie of two."""
    values = [1.0, 3.0, 2.0, 2.0, 7.0, 5.0, 9.0, 8.0]
    pairs = combinations(enumerate(values), 2)
    slopes = sorted((late - early) / (b - a) for (a, early), (b, late) in pairs)
    variance = (8 * 7 * 21 - 2 * 1 * 9) / 18
    reach = 1.959964 * variance**0.5  # 15.7 of 28 slopes
    low, high = round((28 - reach) / 2) - 1, round((28 + reach) / 2)
    assert (low, high) == (5, 22)
    assert sen_slope(values) == Slope(median(slopes), slopes[low], slopes[high])


def test_the_ends_of_an_interval_stay_inside_its_slopes():
    tied = [0.0] * 4 + [1.0] * 4
    assert sen_slope(tied).low == 0.0
    assert sen_slope(list(range(FEWEST))) == Slope(1.0, 1.0, 1.0)
    assert sen_slope(list(range(FEWEST - 1))) is None
    assert sen_slope([0, 9, 0, 9, 0, 9, 0, 9]) == Slope(0.0, 0.0, 3.0)


def test_long_series_are_thinned_evenly():
    spiked = [float(n) for n in range(2 * MOST + 1)]
    spiked[1::2] = [1e9] * MOST
    assert sen_slope(spiked[:MOST]).low == 0.0  # up to 400 values all count
    for length in (MOST + 1, 2 * MOST):  # from then on every second is left out
        assert sen_slope(spiked[:length]) == Slope(1.0, 1.0, 1.0)
    assert sen_slope(spiked).low == 0.0  # every third is kept, every second of them a spike


@pytest.mark.parametrize(
    ("values", "total", "rises", "last_third", "peak"),
    [
        ((), 0.0, 0.0, 0.0, 0.0),
        ((5.0,), 0.0, 0.0, 0.0, 5.0),
        ((1.0, 2.0), 1.0, 1.0, 1 / 3, 2.0),
        ((1.0, 3.0, 3.0, 4.0), 3.0, 2 / 3, 1 / 3, 4.0),
        ((0.0, 6.0, 6.0, 8.0, 7.0, 8.0, 10.0), 10.0, 4 / 6, 5 / 18, 10.0),
        ((4.0, 9.0, 3.0), -1.0, 0.5, 0.0, 9.0),
        ((2.0, 3.0, 2.0, 2.0), 0.0, 1 / 3, 0.0, 3.0),
    ],
)
def test_growth_and_its_shares(values, total, rises, last_third, peak):
    trend = Trend(values)
    assert (trend.total, trend.peak) == (total, peak)
    assert trend.rises == pytest.approx(rises)
    assert trend.last_third == pytest.approx(last_third)


def test_facts_say_how_much_in_how_many_steps():
    wanted = (("grown", "1 KiB in 3 steps"), ("steps with growth", "50%"))
    assert Trend((0.0, 1024.0, 1024.0)).facts == wanted
    assert Trend((1.0,)).slope is None and Trend(tuple(map(float, range(9)))).slope.low == 1.0


@pytest.mark.parametrize(
    ("values", "evenness"),
    [
        ([0, 2, 4, 6, 8, 10, 12, 14, 16], 1.0),
        ([0, 0, 0, 8, 8, 8, 16, 16, 16, 24, 24, 24], 0.0),
        ([5, 5, 5], 0.0),
        ([], 0.0),
    ],
)
def test_how_evenly_a_series_rises(values, evenness):
    assert Trend(tuple(values)).evenness == pytest.approx(evenness, abs=1e-9)


def test_kendalls_variance_with_ties():
    assert _kendall_variance([1, 2, 2, 3, 3, 3]) == (6 * 5 * 17 - 2 * 1 * 9 - 3 * 2 * 11) / 18


@pytest.mark.parametrize(
    ("values", "returned", "noise"),
    [
        ((), 0.0, 0.0),
        ((5, 5, 5), 0.0, 0.0),
        ((9, 8, 7), 0.0, 0.0),  # nothing rose
        ((0.0, 0.5, 1.0, 1.5), 0.0, 0.0),
        ((0, 1, 2, 3, 14), 0.0, 0.0),  # one value bends nothing
        ((0, 0.5, 0.25), 0.5, 0.0),
        ((101, 99) * 4, 2.0 * 4 / (2.0 * 3), 1.0),
    ],
)
def test_what_falls_took_back_and_the_distance_from_the_line(values, returned, noise):
    trend = Trend(values)
    assert trend.returned == pytest.approx(returned)
    assert trend.noise == pytest.approx(noise)
    assert Trend((0.0, 0.5, 1.0, 1.5)).evenness == 1.0
