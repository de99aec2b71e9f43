"""Steps by pass: whose clock, what is taken off, and what a share is of."""

import pytest

from auditor.evidence.recorded.steps import Step, Steps, compiled_caution, own_times, queued_share
from tests.evidence.recorded.rows import steps


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


def test_passes_and_device_times(seen):
    counters = {"rss": 4, "allocated": 5, "reserved": 6, "peak_allocated": 7, "retries": 1}
    rows = [
        *steps(2, "warmup"),
        *steps(3, "quiet", queued_us=400.0, gc_us=900.0, ooms=2, **counters),
        *steps(1, "anomaly_off", us=500.0),
        *steps(4, "eager_held"),
        *steps(5, "compiled_again"),
        *steps(2, queued_us=2000.0, gc_us=5.0),
    ]
    device = [{"pass": "quiet", "step": 1, "us": 90.0}, {"pass": "loud", "step": 0, "us": -1.0}]
    table = seen(device="cuda", steps=rows, device_times=device).get(Steps)
    assert [len(part) for part in (table.quiet, table.loud, table.anomaly_off)] == [3, 2, 1]
    assert (len(table.eager_held), len(table.compiled_again)) == (4, 5)
    host, on_device, _ = table.quiet
    assert (host.us, host.by_device, host.own_us, host.host_us) == (1000.0, False, 600.0, 1000.0)
    assert (on_device.us, on_device.by_device, on_device.own_us) == (90.0, True, 90.0)
    assert (host.gc_us, on_device.gc_us, on_device.host_us) == (600.0, 900.0, 1000.0)
    assert (host.rss, host.allocated, host.reserved, host.peak_allocated) == (4, 5, 6, 7)
    assert (host.retries, host.ooms, host.number, on_device.number) == (1, 2, 0, 1)
    first, second = table.loud
    assert (first.us, first.by_device, second.queued_us, second.gc_us) == (0.0, True, 1000.0, 0.0)
    wanted = (0, None, None, 0, 0)
    assert (second.rss, second.allocated, second.reserved, second.retries, second.ooms) == wanted


def test_negative_times_are_none(seen):
    (one,) = seen(steps=steps(1, us=-5.0, queued_us=-4.0)).get(Steps).loud
    assert (one.us, one.queued_us, one.host_us) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("number", [4, 5])
def test_a_typical_step_needs_five(number):
    table = Steps(quiet=tuple(Step(n, 100.0 + n, queued_us=1.0) for n in range(number)))
    if number < 5:
        assert table.typical is None
    else:
        assert table.typical.value == 101.0


def test_a_share_is_that_of_the_mean_step():
    table = Steps(quiet=(Step(0, 100.0), Step(1, 300.0, queued_us=100.0)))
    assert table.share_of_step(30.0) == 0.2
    assert Steps().share_of_step(30.0) == 0.0
    assert Steps(quiet=(Step(0, 0.0),)).share_of_step(30.0) == 0.0


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
