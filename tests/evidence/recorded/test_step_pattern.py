"""Rhythms: their words, shares, intervals, and from which share on they are usual."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.evidence.recorded.step_pattern import (
    BURST,
    FEWEST_STEPS,
    counted_pattern,
    step_pattern,
)

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


def bursts(*steps, n=BURST, of=32):
    return counted_pattern([(step, n) for step in steps], of)


@pytest.mark.parametrize(
    ("pattern", "per_step"),
    [
        (bursts(10, 26, n=512), 32.0),  # a rollout in every 16th step
        (bursts(10, 26, n=16), 1.0),
        (bursts(3, 9, 16, 24, 30, n=64), 4 * 64 / 27),  # distances may vary
    ],
)
def test_phases_weigh_by_the_steps_of_whole_cycles(pattern, per_step):
    assert pattern.mean(zip(pattern.seen, pattern.times, strict=True)) == pytest.approx(per_step)
    assert pattern.often and pattern.usual(0.5)
    assert pattern.weight(**WEIGHT) == "usual"
    assert pattern.phases.startswith(f"; {pattern.times[0]} times in each of those")


@pytest.mark.parametrize(
    "pattern",
    [
        bursts(10, 26, n=15),  # less than once in each step
        bursts(10, n=31),  # once, and less than once in each step
        bursts(10, 12, n=512),  # it has ended, or had not begun
        bursts(0, 1, n=512),
        bursts(20, 26, n=512),
        counted_pattern([(10, 512), (26, BURST - 1)], 32),
        step_pattern({10, 26}, 32),
    ],
)
def test_what_is_no_phase_is_weighed_as_before(pattern):
    assert not pattern.often and not pattern.usual(0.5) and not pattern.phases
    assert pattern.weight(**WEIGHT) is None


@pytest.mark.parametrize(
    ("step", "said"), [(0, " (the first of them: it may be set-up)"), (1, ""), (16, "")]
)
def test_a_burst_that_was_seen_once_is_told_with_its_number(step, said):
    pattern = bursts(step, n=200, of=17)
    assert (pattern.weight(**WEIGHT), str(pattern)) == ("sometimes", "1 of 17 steps")
    assert pattern.phases == f"; 200 times in that step{said}"
    assert not pattern.usual(0.5)
