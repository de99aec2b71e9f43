"""Rhythms: their words, shares, intervals, and from which share on they are usual."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.evidence.recorded.step_pattern import FEWEST_STEPS, StepPattern, step_pattern

WEIGHT = {"usual": 0.9, "rare": 0.1, "interval": 5, "enough": 10}


def every(distance, of, first=0):
    return step_pattern(set(range(first, of, distance)), of)


@pytest.mark.parametrize(
    ("seen", "of", "words", "share"),
    [
        ({0}, 1, "the only step", 1.0),
        (set(), 2, "0 of 2 steps", 0.0),
        ({1, 0}, 4, "2 of 4 steps", 0.5),
        (set(), 0, "0 of 0 steps", 0.0),
    ],
)
def test_words_and_share(seen, of, words, share):
    assert (str(step_pattern(seen, of)), step_pattern(seen, of).share) == (words, share)


@given(st.sets(st.integers(0, 40)), st.integers(0, 30))
def test_a_rhythm_holds_the_completed_steps_in_order(seen, of):
    assert step_pattern(seen, of).seen == tuple(n for n in range(of) if n in seen)


@pytest.mark.parametrize(
    ("seen", "interval"),
    [((0, 3, 6), 3), ((1, 2), 1), ((0, 3, 5), None), ((4,), None), ((), None)],
)
def test_the_interval_is_the_one_distance_between_sightings(seen, interval):
    assert StepPattern(seen, 10).interval == interval


def test_usual_begins_at_its_share_and_with_three_steps():
    assert FEWEST_STEPS == 3
    assert every(1, 3).usual(1.0) and not every(1, 2).usual(1.0)
    assert every(2, 4).usual(0.5) and not every(2, 4).usual(0.51)


@pytest.mark.parametrize(
    ("pattern", "weight"),
    [
        (every(1, 10), "usual"),
        (step_pattern(set(range(9)), 10), "usual"),  # 0.9, the share asked for
        (step_pattern(set(range(8)), 10), "sometimes"),
        (every(2, 10), "sometimes"),
        (every(4, 20), "sometimes"),
        (every(5, 20), None),  # as seldom as the interval that is allowed
        (step_pattern({3}, 10), None),  # once says nothing of how often
        (step_pattern({3, 4}, 20), "sometimes"),  # 0.1, the share asked for
        (step_pattern({3, 4}, 21), None),
        (step_pattern({1, 2, 5}, 10), "sometimes"),
        (every(1, 9), "usual"),  # too few steps: on every one, or nothing
        (step_pattern(set(range(8)), 9), None),
        (every(1, 2), None),
    ],
    ids=str,
)
def test_the_weight_of_a_rhythm(pattern, weight):
    assert pattern.weight(**WEIGHT) == weight
