"""Steps by pass: whose clock, what is taken off, and what a share is of."""

from dataclasses import replace

import pytest

from auditor.evidence.recorded.steps import (
    Step,
    Steps,
    compiled_caution,
    own_times,
    queued_share,
)


@pytest.mark.parametrize(
    ("us", "queued", "by_device", "own"),
    [
        (100.0, 30.0, False, 70.0),
        (100.0, 100.0, False, 0.0),
        (100.0, 130.0, False, 0.0),
        (100.0, -5.0, False, 100.0),
        (100.0, 0.5, False, 99.5),
        (100.0, 30.0, True, 100.0),
    ],
)
def test_waiting_is_taken_off_the_hosts_clock_alone(us, queued, by_device, own):
    assert Step(0, us, queued_us=queued, by_device=by_device).own_us == own


def test_a_step_of_which_nothing_is_left_tells_no_time():
    gone, half = Step(0, 10.0, queued_us=10.0), Step(1, 10.0, queued_us=9.5)
    assert own_times((gone, half)) == (0.5,)
    assert own_times((gone, gone)) == (0.0, 0.0)
    assert own_times(()) == ()


@pytest.mark.parametrize(
    ("rows", "share"),
    [
        ((), 0.0),
        ((Step(0, 0.0, queued_us=5.0),), 0.0),
        ((Step(0, 100.0, queued_us=10.0), Step(1, 300.0)), 0.025),
        ((Step(0, 100.0, queued_us=10.0, host_us=400.0, by_device=True),), 0.025),
        ((Step(0, 100.0, queued_us=300.0),), 1.0),
        ((Step(0, 100.0, queued_us=-3.0),), 0.0),
        ((Step(0, 0.5, queued_us=0.25),), 0.5),
    ],
    ids=str,
)
def test_the_share_of_waiting(rows, share):
    assert queued_share(rows) == share


def test_what_is_saved_without_anomaly_mode():
    def some(us, queued=0.0):
        return tuple(Step(n, us, queued_us=queued) for n in range(6))

    saved = Steps(quiet=some(300.0), anomaly_off=some(100.0)).saved_with_anomaly_off()
    assert (saved.value, saved.low, saved.high) == (200.0, 200.0, 200.0)
    busy = Steps(quiet=some(300.0, 60.0), anomaly_off=some(100.0)).saved_with_anomaly_off()
    assert busy.value == 140.0 and busy.low < 140.0 < busy.high
    other = Steps(quiet=some(300.0), anomaly_off=some(100.0, 60.0)).saved_with_anomaly_off()
    assert other.value == 260.0 and other.low < 260.0


def test_a_step_that_compiled_tells_no_time_where_others_do():
    compiled, plain = Step(0, 900.0, compiles=2), Step(1, 10.0)
    assert own_times((compiled, plain)) == (10.0,)
    assert own_times((compiled,)) == (900.0,)


def test_steps_that_compiled_are_said():
    compiled, plain = Step(0, 900.0, compiles=2), Step(1, 10.0)
    assert compiled_caution((plain, plain)) == ""
    assert compiled_caution((compiled, plain, plain)) == (
        "torch.compile compiled in 1 of 3 timed steps: the step time leaves them out"
    )
    assert compiled_caution((compiled, compiled)) == (
        "torch.compile compiled in every timed step: their time is mostly the compiler's"
    )


def some(us, number=6, first=0, **more):
    return tuple(Step(n, us, **more) for n in range(first, first + number))


def test_shares_and_differences_of_the_quiet_steps():
    table = Steps(quiet=(*some(100.0), Step(6, 900.0, compiles=1), *some(140.0, first=7)))
    assert (table.share_of_step(30.0), Steps().share_of_step(30.0)) == (0.25, 0.0)
    assert Steps(quiet=some(0.5)).share_of_step(0.25) == 0.5
    assert table.typical.value == 120.0 and Steps(quiet=some(1.0, 2)).typical is None
    slower = table.slower_after(6)
    assert (slower.value, slower.low, slower.high) == (40.0, 40.0, 40.0)
    assert table.slower_after(7).value == 40.0 and table.slower_after(8) is None
    assert [each.us for each in replace(table, loud=some(7.0, 1)).of("loud")] == [7.0]


@pytest.mark.parametrize(
    ("quiet", "again", "gained"),
    [
        (100.0, None, (200.0, 200.0, 200.0)),
        (100.0, 140.0, (180.0, 160.0, 200.0)),
        (None, None, None),
        (None, 140.0, (160.0, 160.0, 160.0)),
    ],
)
def test_what_compiling_gains_against_both_passes(quiet, again, gained):
    passes = {"quiet": quiet, "compiled_again": again, "eager_held": 300.0}
    found = Steps(**{name: some(us) for name, us in passes.items() if us}).gained_by_compile()
    assert (found and (found.value, found.low, found.high)) == gained
