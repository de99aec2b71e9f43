"""How often intervals over a run's steps miss the truth, on made-up series."""

import math
import random

import pytest

from auditor.batch_means import FEWEST_BATCHES, difference, mean_of, median_of, of_separate


def _series(draw, n=50, alike=0.8, level=1000.0):
    """An autoregressive series of that correlation, 3 % of noise a step."""
    slow, values = draw.gauss(0, 0.03 / math.sqrt(1 - alike**2)), []
    for _ in range(n):
        slow = alike * slow + draw.gauss(0, 0.03)
        values.append(level * math.exp(slow))
    return values


@pytest.mark.parametrize("alike", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("n", [50, 100])
def test_two_passes_of_one_program_are_told_apart_once_in_twenty_at_most(alike, n):
    draw, wrong = random.Random(n), 0
    for _ in range(300):
        found = difference(_series(draw, n, alike), _series(draw, n, alike))
        assert found is not None
        wrong += not found.low <= 0.0 <= found.high
    assert wrong <= 24  # 15 are promised; 25 and more of 300 have a chance of 1 %


@pytest.mark.parametrize("alike", [0.0, 0.8])
def test_the_interval_of_a_mean_and_of_a_median_hold_the_truth(alike):
    draw, missed = random.Random(9), [0, 0]
    mean = 1000.0 * math.exp(0.03**2 / (1 - alike**2) / 2)
    for _ in range(300):
        values = _series(draw, 50, alike)
        for place, (found, truth) in enumerate(
            ((mean_of(values), mean), (median_of(values), 1000.0))
        ):
            assert found is not None
            missed[place] += not found.low <= truth <= found.high
    assert max(missed) <= 24


def test_a_busy_machine_proves_less():
    draw = random.Random(4)
    more, less = _series(draw, level=1100.0, alike=0.0), _series(draw, alike=0.0)
    quiet, busy = difference(more, less), difference(more, less, busy=(0.5, 0.5))
    assert quiet is not None and busy is not None
    assert quiet.proven and not busy.proven
    assert quiet.value == busy.value


def test_a_burst_that_came_once_is_not_proven_and_one_in_every_batch_is():
    once = mean_of([40_000.0 if 20 <= step < 25 else 0.0 for step in range(50)])
    often = mean_of([40_000.0 if step % 5 == 0 else 0.0 for step in range(50)])
    assert once is not None and often is not None
    assert once.value == 4000.0 and not once.proven
    assert often.proven


@pytest.mark.parametrize("n", [0, FEWEST_BATCHES - 1])
def test_too_few_steps_have_no_interval(n):
    few, enough = [1.0] * n, [1.0] * FEWEST_BATCHES
    assert mean_of(few) is None and median_of(few) is None
    assert difference(few, enough) is None and difference(enough, few) is None
    assert mean_of(enough) is not None


def test_separate_durations_stay_above_zero_and_two_say_nothing():
    found = of_separate([100.0, 1000.0, 200.0])
    assert found is not None
    assert 0.0 < found.low < found.value < found.high
    assert of_separate([100.0, 120.0]) is None
    assert of_separate([0.0, 100.0, 120.0]) is None
    huge = of_separate([1e-9, 1e9, 1e-9])
    assert huge is not None and math.isfinite(huge.high)
