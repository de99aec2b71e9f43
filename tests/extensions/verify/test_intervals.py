"""How often intervals miss the truth, counted on made-up runs whose truth is known."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.extensions.verify import intervals
from auditor.extensions.verify.intervals import (
    MOST_PAIRS,
    RunTimes,
    of_pairs,
    of_recordings,
    student_t,
)

times = st.floats(min_value=1.0, max_value=1e7)


def _runs(draw, n, ratio=1.0, spread=0.03):
    before = [math.exp(draw.gauss(0, spread)) for _ in range(n)]
    return before, [ratio * math.exp(draw.gauss(0, spread)) for _ in range(n)]


@pytest.fixture(autouse=True)
def _fewer_draws(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 300)


@pytest.mark.parametrize(
    ("confidence", "freedom", "t"),
    [(0.95, 1, 12.706), (0.95, 2, 4.303), (0.95, 5, 2.571), (0.99, 2, 9.925), (0.99, 9, 3.250)],
)
def test_student_quantiles_are_those_of_the_tables(confidence, freedom, t):
    assert student_t(confidence, freedom) == pytest.approx(t, abs=0.001)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_an_interval_over_pairs_covers_the_true_ratio(n):
    draw = random.Random(n)
    covered = 0
    for _ in range(300):
        interval = of_pairs(*_runs(draw, n, ratio=0.8))
        assert interval is not None
        covered += interval.low <= 0.8 <= interval.high
    assert covered >= 291  # nominal 297 of 300; below 97 % has a chance of 1 in 300


def test_looking_after_each_pair_rarely_cries_wolf():
    draw = random.Random(7)
    wrong = sum(_ever_excludes_one(*_runs(draw, MOST_PAIRS)) for _ in range(200))
    assert wrong <= 16  # at most 5 % are promised: 17 and more of 200 have a chance of 2 %


def _ever_excludes_one(before, after):
    looks = (of_pairs(before[:n], after[:n]) for n in range(3, len(before) + 1))
    return any(interval is not None and interval.excludes_one for interval in looks)


def test_drift_from_pair_to_pair_cancels():
    slower_and_slower = [1.0, 1.5, 2.0, 3.0]
    interval = of_pairs(slower_and_slower, [0.8 * each for each in slower_and_slower])
    assert interval is not None
    assert interval.low == pytest.approx(0.8)
    assert interval.high == pytest.approx(0.8)


@given(st.lists(st.tuples(times, times), min_size=3, max_size=8))
def test_an_interval_holds_its_estimate_and_turns_around_with_its_sides(pairs):
    before, after = zip(*pairs, strict=True)
    one, other = of_pairs(before, after), of_pairs(after, before)
    assert one is not None
    assert other is not None
    assert one.low <= one.ratio <= one.high
    assert one.ratio * other.ratio == pytest.approx(1.0)


def _steps(draw, n=50):
    """A run: its own level, and neighbouring steps that are slow together."""
    level, slow, steps = math.exp(draw.gauss(0, intervals.RUN_TO_RUN)), 0.0, []
    for _ in range(n):
        slow = 0.8 * slow + draw.gauss(0, 0.03)
        steps.append(1000 * level * math.exp(slow))
    return RunTimes(tuple(steps))


def test_single_runs_of_one_program_are_told_apart_at_most_once_in_twenty():
    draw = random.Random(3)
    compared = [of_recordings([_steps(draw)], [_steps(draw)]) for _ in range(200)]
    assert sum(each is None or each.excludes_one for each in compared) <= 18  # 10 are expected


def test_blocks_are_wider_than_single_steps_where_neighbours_are_alike(monkeypatch):
    monkeypatch.setattr(intervals, "RUN_TO_RUN", 0.0)
    draw = random.Random(5)
    pairs = [([_steps(draw)], [_steps(draw)]) for _ in range(20)]
    monkeypatch.setattr(intervals, "BLOCK_SHARE", 0.02)  # one step of fifty
    single = [_width(of_recordings(*pair)) for pair in pairs]
    monkeypatch.setattr(intervals, "BLOCK_SHARE", 0.2)
    blocks = [_width(of_recordings(*pair)) for pair in pairs]
    assert sum(blocks) > 1.5 * sum(single)


def _width(interval):
    assert interval is not None
    return interval.high - interval.low


def test_several_runs_show_their_own_spread():
    draw = random.Random(11)
    quiet = [RunTimes(tuple(1000.0 + draw.random() for _ in range(20))) for _ in range(5)]
    slower = [RunTimes(tuple(1.03 * us for us in run.us)) for run in quiet]
    interval = of_recordings(quiet, slower)
    assert interval is not None
    assert (
        interval.low > 1.02
    )  # 3 % are nothing between two single runs, and proven between five steady ones each
    single = of_recordings(quiet[:1], slower[:1])
    assert single is not None
    assert not single.excludes_one


def test_a_busy_machine_makes_an_interval_wider():
    steps = tuple(1000.0 + step % 7 for step in range(50))
    quiet, busy = (
        of_recordings([RunTimes(steps)], [RunTimes(steps)]),
        of_recordings([RunTimes(steps)], [RunTimes(steps, busy=0.4)]),
    )
    assert _width(busy) > 2 * _width(quiet)
