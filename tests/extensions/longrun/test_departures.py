"""When a long run departs from its course, on both sides of each threshold, and when there is a
look. No clock of the machine is read here.
"""

from __future__ import annotations

import random

import pytest

from auditor.extensions.longrun.meter import BEAT_S, BUCKETS, Beats, Quantiles
from auditor.extensions.longrun.observer import (
    FEWEST,
    KEPT,
    LEAST_BYTES,
    LEAST_SPAN_S,
    LOSS,
    MEMORY,
    SIGMA,
    STEP_TIME,
    Course,
    Growth,
    Observer,
    Samples,
    Threshold,
    _Memory,
)
from auditor.extensions.longrun.rota import HOUR_S, Rota

MIB = 1 << 20


def told(course, values):
    return [number for number, each in enumerate(values) if course.add(each) is not None]


def noisy(n, level=1.0, spread=0.02, seed=3):
    draw = random.Random(seed)
    return [level + spread * draw.uniform(-1, 1) for _ in range(n)]


# -- one series ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("off", "fires"), [(8, True), (7, False)])
def test_so_many_of_the_last_readings_must_be_off(off, fires):
    recent = [2.0] * off + [1.0] * (10 - off)
    assert bool(told(Course(STEP_TIME), [1.0] * 40 + recent)) is fires


@pytest.mark.parametrize(("level", "fires"), [(1.21, True), (1.20, False), (0.5, False)])
def test_the_share_decides_where_nothing_varies(level, fires):
    assert bool(told(Course(STEP_TIME), [1.0] * 60 + [level] * 10)) is fires


@pytest.mark.parametrize("above", [True, False])
def test_the_deviations_decide_where_much_varies(above):
    """0, 1, 2 in turn: median 1, MAD 1."""
    limit = 1 + 5 * SIGMA
    level = limit + 0.01 if above else limit - 0.01
    assert bool(told(Course(STEP_TIME), [0.0, 1.0, 2.0] * 20 + [level] * 10)) is above


@pytest.mark.parametrize(("least", "fires"), [(40, True), (39, False)])
def test_there_must_be_a_course(least, fires):
    assert bool(told(Course(STEP_TIME), [1.0] * least + [3.0] * 10)) is fires


def test_an_evaluation_every_fifth_beat_is_the_course_and_one_pause_is_nothing():
    beats = [5.0 if number % 5 == 4 else each for number, each in enumerate(noisy(600))]
    assert told(Course(STEP_TIME), beats) == []
    assert told(Course(STEP_TIME), [*noisy(100), 60.0, 60.0, *noisy(100)]) == []


def test_a_new_level_is_told_once_and_so_is_the_next():
    course = Course(STEP_TIME)
    found = told(course, [*noisy(100), *noisy(100, 2.0), *noisy(100, 3.0)])
    assert len(found) == 2 and 107 <= found[0] <= 109 and 207 <= found[1] <= 209


def test_noise_alone_departs_nowhere():
    draw = random.Random(5)
    heavy = [draw.lognormvariate(0, 0.5) for _ in range(20_000)]
    assert told(Course(STEP_TIME), heavy) == []


@pytest.mark.parametrize(
    ("grown", "fires"), [(257 * MIB, True), (255 * MIB, False)], ids=["above", "below"]
)
def test_memory_jumps_by_a_floor(grown, fires):
    assert bool(told(Course(MEMORY), [1000 * MIB] * 24 + [1000 * MIB + grown] * 3)) is fires


def test_memory_that_comes_and_goes_is_no_jump():
    readings = ([1000 * MIB] * 5 + [2000 * MIB] * 2) * 30
    assert told(Course(MEMORY), readings) == []


def test_a_loss_that_falls_or_is_negative_is_on_its_course():
    assert told(Course(LOSS), [-each / 100 for each in range(500)]) == []
    assert told(Course(LOSS), [*noisy(60, -2.0), *noisy(10, -0.5)]) != []


@pytest.mark.parametrize(("rises_to", "fires"), [(0.003, True), (0.002, False)])
def test_a_loss_that_has_come_down_to_nothing_is_no_news(rises_to, fires):
    values = [2.3] * 10 + [1e-15] * 200 + [rises_to] * 10
    assert bool(told(Course(LOSS), values)) is fires


def test_a_threshold_of_ones_own():
    course = Course(Threshold(deviations=1, share=0, window=4, least=2, last=1, needed=1))
    assert told(course, [1, 1, 1, 1, 2]) == [4]


# -- growth ----------------------------------------------------------------------------------------


def grown(values, seconds=5.0):
    samples, found = Samples(), []
    for number, value in enumerate(values):
        samples.add(value, number * seconds)
        if number % 12 == 11:
            found.append(samples.grown())
    return [each for each in found if each is not None]


def rising(n, per_reading, seed=1, noise=4 * MIB, start=1000 * MIB):
    draw = random.Random(seed)
    return [start + number * per_reading + draw.uniform(0, noise) for number in range(n)]


def test_growth_is_told_and_again_when_it_has_doubled():
    found = grown(rising(1000, 2 * MIB))
    assert 2 <= len(found) <= 6
    assert found[0].low > 0 and found[0].bytes >= LEAST_BYTES
    assert found[0].per_hour == pytest.approx(1440 * MIB, rel=0.1)
    assert all(late.bytes >= 2 * early.bytes for early, late in zip(found, found[1:], strict=False))


@pytest.mark.parametrize(("total", "fires"), [(70 * MIB, True), (58 * MIB, False)])
def test_growth_has_a_least_amount(total, fires):
    assert bool(grown(rising(96, total / 95, noise=MIB, start=500 * MIB))) is fires


@pytest.mark.parametrize(("total", "fires"), [(5600 * MIB, True), (4400 * MIB, False)])
def test_of_much_memory_it_is_a_share(total, fires):
    assert bool(grown(rising(96, total / 95, start=100_000 * MIB))) is fires


def remembered(values, seconds=5.0):
    """What is said of host memory that is read every five seconds."""
    memory, found = _Memory("host", "host"), []
    for number, value in enumerate(values):
        now = number * seconds
        found.append(memory.add(int(value), now))
        if number % 12 == 11:
            found.append(memory.grown())
    return [each for each in found if each is not None]


def test_a_leak_grows_and_goes_on_growing_and_is_no_jump():
    """Calm for five minutes, then 25 MiB more with each reading."""
    found = remembered([*rising(60, 0), *rising(300, 25 * MIB)])
    assert {each.kind for each in found} == {"growth"} and len(found) >= 3
    assert "memory grows" in found[0].what
    assert all("still grows" in each.what for each in found[1:])
    assert found[0].facts["bytes"] < 400 * MIB, "long before five minutes of it"
    an_hour = 3600 * found[0].facts["bytes"] / found[0].facts["seconds"]
    assert an_hour == pytest.approx(720 * 25 * MIB, rel=0.15)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_jump_is_no_growth(parts):
    calm = rising(60, 0)
    between = [1400 * MIB] if parts == 2 else []
    (jump,) = remembered([*calm, *between, *rising(60, 0, start=1800 * MIB)])
    assert jump.kind == "memory" and "went from" in jump.what


def test_what_levels_off_or_only_varies_does_not_grow():
    draw = random.Random(2)
    first = rising(40, 10 * MIB)
    level = first[-1]
    assert grown([*first, *(level + draw.uniform(0, 4 * MIB) for _ in range(2000))]) == []
    assert grown([1000 * MIB + draw.uniform(0, 500 * MIB) for _ in range(2000)]) == []
    saw = [1000 * MIB + (number % 30) * 20 * MIB for number in range(2000)]
    assert grown(saw) == []


def test_a_short_time_says_nothing_and_a_look_is_left_out():
    fast = rising(FEWEST + 20, 50 * MIB)
    assert grown(fast, seconds=LEAST_SPAN_S / (FEWEST + 30)) == []
    samples = Samples()
    for number in range(95):
        if number == 40:
            samples.leave_out(300 * MIB)
        samples.add(1000 * MIB + 300 * MIB * (number >= 40), number * 5.0)
    assert samples.grown() is None


def test_samples_are_few_and_evenly_spaced():
    samples = Samples()
    for number in range(12_345):
        samples.add(number, number)
    values = samples._values
    assert KEPT / 2 <= len(values) < KEPT
    assert len({late - early for early, late in zip(values, values[1:], strict=False)}) == 1


# -- the clock -------------------------------------------------------------------------------------


def test_quantiles_are_within_a_hundredth_and_bounded():
    times, draw = Quantiles(), random.Random(4)
    values = sorted(draw.lognormvariate(-4, 1) for _ in range(50_000))
    for each in values:
        times.add(each)
    for share in (0.01, 0.5, 0.99):
        assert times.at(share) == pytest.approx(values[int(share * len(values))], rel=0.012)
    for each in (0.0, 1e9):
        times.add(each)
    assert len(times._counts) == BUCKETS and times.n == 50_002
    assert Quantiles().at(0.5) == 0.0


def test_a_beat_is_half_a_second_or_one_long_step():
    beats, now = Beats(), 0.0
    ends = []
    for _ in range(100):
        now += 0.125
        if beats.step(now):
            ends.append((now, beats.taken(now)))
    assert {mean for _, mean in ends} == {0.125}
    assert ends[1][0] - ends[0][0] == BEAT_S
    beats.restart(90.0)
    assert beats.step(93.0) and beats.taken(93.0) == 3.0
    beats.restart(100.0)
    assert not beats.step(100.1), "what went by in a look is no step"


# -- losses ----------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_is_told_once():
    observer = Observer()
    assert observer.logged(1.0) is None
    first = observer.logged(float("nan"))
    assert first.kind == "loss" and "nan" in first.what
    assert [observer.logged(float("inf")) for _ in range(50)] == [None] * 50
    for _ in range(2):
        observer.logged(1.0)
        observer._heard()
    assert observer.logged(float("inf")) is not None


# -- when there is a look --------------------------------------------------------------------------


def taken(rota, steps, second_per_step=1.0, cost=0.0):
    looks = []
    for step in range(1, steps + 1):
        now = step * second_per_step
        why = rota.due(step, now)
        if why:
            rota.begun(step, now)
            rota.ended(cost)
            looks.append(step)
    return looks


def test_a_look_every_so_many_steps():
    assert taken(Rota(100, 0.02, 0.0), 350) == [100, 200, 300]


@pytest.mark.parametrize(("cost", "looks"), [(2.0, [100, 200, 300]), (4.0, [100, 200])])
def test_looks_keep_to_their_share_of_the_time(cost, looks):
    """Two seconds in each hundred are 2 %; of four, every second look is put off."""
    assert taken(Rota(100, 0.02, 0.0), 399, cost=cost)[:3] == looks


def test_departures_have_a_cool_down_and_a_bound():
    rota = Rota(10**9, 1.0, 0.0, cool_down=100.0, per_hour=3)
    looks = []
    for now in range(0, int(HOUR_S) + 500, 10):
        rota.depart("step time", "slow", float(now))
        if rota.due(now, float(now)):
            rota.begun(now, float(now))
            looks.append(now)
    assert looks == [0, 100, 200, 3600, 3700, 3800]
    assert rota.held_back > 300


def test_a_second_problem_is_looked_at_while_the_first_cools_down():
    rota = Rota(10**9, 1.0, 0.0, cool_down=100.0)
    assert rota.depart("step time", "slow", 0.0)
    rota.begun(0, 0.0)
    rota.ended(0.0)
    assert not rota.depart("step time", "slower", 50.0)
    assert rota.depart("growth", "memory grows", 50.0)
    assert rota.due(1, 50.0) == "memory grows"


def test_what_the_budget_holds_back_is_looked_at_when_it_allows_that():
    rota = Rota(10**9, 0.01, 0.0)
    assert rota.depart("step time", "slow", 0.0)
    rota.begun(0, 0.0)
    rota.ended(5.0)
    assert not rota.depart("growth", "memory grows", 100.0)
    assert rota.due(1, 499.0) == "" and rota.due(1, 500.0) == "memory grows"


def test_departures_and_looks_by_the_way_have_budgets_of_their_own():
    rota = Rota(100, 0.01, 0.0, cool_down=0.0)
    assert taken(rota, 100, cost=5.0) == [100]
    assert taken(rota, 400, cost=0.0) == [], "not before 500 s"
    assert rota.depart("step time", "slow", 101.0)
    rota.begun(101, 101.0)
    rota.ended(3.0)
    assert not rota.depart("step time", "slow", 299.0)
    assert rota.depart("step time", "slow", 300.0)
    assert rota.added == 8.0


def test_who_asks_gets_a_look_at_once_and_nobody_pays_for_it():
    rota = Rota(100, 0.001, 0.0)
    assert taken(rota, 100, cost=50.0) == [100]
    rota.ask()
    assert rota.depart("step time", "slow", 101.0)
    assert rota.due(101, 101.0) == "asked for"
    rota.begun(101, 101.0)
    rota.ended(50.0)
    assert rota.due(102, 102.0) == ""
    assert rota.depart("step time", "slow", 103.0), (
        "the look that was asked for was none for a departure"
    )


@pytest.mark.parametrize(("told_mib", "again"), [(100, True), (200, False)])
def test_growth_that_was_told_is_told_again_when_it_has_doubled(told_mib, again):
    samples = Samples()
    samples.was_told(Growth(told_mib * MIB, 60.0, 0.0))
    for number, value in enumerate(rising(101, 3 * MIB, noise=MIB)):
        samples.add(value, 5.0 * number)
    assert (samples.grown() is not None) is again
