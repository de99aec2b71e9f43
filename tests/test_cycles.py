"""Phases in the times of steps: which come again, and what a pass needs to hold them."""

import random

import pytest

from auditor.cycles import HEAVY, MOST_S, cycle_of, period_of, prolonged, whole_cycles


def steps(cycle, n=50, first=0, heavy=40.0):
    """Times in us of steps of which each ``cycle``-th is ``heavy`` times as long."""
    noise = random.Random(cycle)
    return [
        1000.0 * (heavy if step % cycle == first else noise.uniform(0.7, 1.4)) for step in range(n)
    ]


@pytest.mark.parametrize("cycle", [2, 3, 10, 16, 25])
@pytest.mark.parametrize("first", [0, 1])
def test_a_phase_is_found_by_its_distance(cycle, first):
    heavy = HEAVY * 2 if cycle > 2 else HEAVY * 20  # of two, the usual step is a mean of both
    expected = cycle if cycle > 2 else None
    assert cycle_of(steps(cycle, first=first, heavy=heavy)) == expected


def test_shorter_outliers_are_no_phase_and_hide_none():
    us = steps(16)
    us[5], us[21], us[22], us[48] = 9000.0, 13000.0, 6000.0, 14000.0
    assert cycle_of(us) == 16


@pytest.mark.parametrize(
    "us",
    [
        [],
        [0.0] * 20,
        [1000.0] * 50,
        steps(16, heavy=2.0),  # a log
        steps(30, first=0, n=30),  # once
        [*steps(50, first=10), *steps(50, first=0, n=6)][:50],
        steps(5, n=20) + [1000.0] * 30,  # it has ended
        [1000.0] * 30 + steps(5, n=20),
        [1000.0 if step not in (3, 10, 30) else 9e4 for step in range(50)],
        [{5: 14e3, 28: 8e3, 40: 4.1e3}.get(step, 1e3) for step in range(50)],  # two by chance
    ],
)
def test_what_does_not_come_again_at_a_distance_is_no_phase(us):
    assert cycle_of(us) is None


def test_a_pass_gets_two_cycles_where_they_fit():
    assert whole_cycles(steps(16), 20, 50) == 32
    assert whole_cycles(steps(25), 20, 50) == 50
    assert whole_cycles(steps(25), 20, 49) == 20
    assert whole_cycles(steps(10), 20, 50) == 20  # it has them
    assert whole_cycles(steps(10), 12, 50) == 20
    assert whole_cycles([1000.0] * 50, 20, 50) == 20
    takes = 32 * sum(steps(16)) / 50 / 1e6
    assert whole_cycles(steps(16), 20, 50, slower=0.99 * MOST_S / takes) == 32
    assert whole_cycles(steps(16), 20, 50, slower=1.01 * MOST_S / takes) == 20


def test_the_sentence_has_the_cycle_and_the_steps():
    assert prolonged(32).startswith("every 16th step takes 3 times")
    assert " 32 steps" in prolonged(32)


@pytest.mark.parametrize(
    ("kinds", "period"),
    [
        ("aa", 1),
        ("abab", 2),
        ("aba", None),  # b was seen once
        ("aabaab", 3),
        ("aaaabaaaab", 5),
        ("aaaaabaaaaab", None),  # longer than is asked for
        ("aaab", None),
        ("a", None),
        ("", None),
    ],
)
def test_kinds_of_steps_that_alternate_have_a_period(kinds, period):
    assert period_of(kinds, 5) == period
