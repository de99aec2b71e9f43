"""Idle time: all of it given to somebody once, and to the right one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.timeline import Timeline
from auditor.timeline.waits import (
    DEVICE,
    DRIVER,
    HOST,
    INPUT,
    LAUNCHING,
    PROFILER,
    UNKNOWN,
    launched_in,
)
from tests.timeline.kineto import (
    call,
    kernel,
    launch,
    loading,
    mark,
    op,
    span,
    text,
    write,
)


@pytest.fixture
def line_of(tmp_path):
    return lambda *events: Timeline.of(write(tmp_path, text(events)))


def step(*events, us=5000.0):
    return [mark(1000, us), *events]


def causes_of(line):
    return {cause: ns for cause, ns in line.idle.by_cause().items() if ns}


def launched(at, start, us, number, name="k", stream=7):
    return [launch(at, 5, number), kernel(name, start, us, number, stream)]


def test_each_gap_goes_to_who_could_have_filled_it(line_of):
    line = line_of(
        *step(
            loading(1000, 900),
            # after 100 us of the host: the gap before it is 900 us of input and 100 of the host
            *launched(1950, 2000, 500, 1),
            *launched(2600, 2700, 300, 2),  # 200 us without work, launched in them
            *launched(2650, 3050, 450, 3),  # 50 us with work in the queue
            *launched(4200, 4300, 200, 4),  # 800 us in which the host did something else
            us=4000,
        )
    )
    found = causes_of(line)
    # from the end of each launching call (5 us) on, and all of the third gap
    queued = 45_000 + 95_000 + 50_000 + 95_000
    host = {INPUT: 900_000, LAUNCHING: 105_000, HOST: 55_000 + 705_000}
    assert found == {**host, DEVICE: queued, UNKNOWN: 500_000}
    assert line.idle.total == 4_000_000 - 1_450_000


def test_a_gap_is_split_at_the_end_of_the_launching_call(line_of):
    """As recorded: the next work, launched 40 us into the gap, did not start for 130 ms."""
    graph = [call("cudaGraphLaunch", 2030, 10, 2), kernel("replayed", 132_000, 500, 2)]
    line = line_of(*step(*launched(1000, 1010, 990, 1), *graph, us=140_000))
    found = line.idle
    assert causes_of(line) == {
        # of the first work's gap and of the graph's: up to the end of the call
        LAUNCHING: 5_000 + 40_000,
        DEVICE: 5_000 + 132_000_000 - 2_040_000,
        UNKNOWN: 141_000_000 - 132_500_000,
    }
    first = line.trace.calls.name[found.call[found.of_queue()[0]]]
    assert line.trace.names[first] == "cudaGraphLaunch"
    assert len(found.of_host()) == 0


def test_a_launch_that_was_held_until_the_gap_had_begun_is_the_hosts_until_it_ended(line_of):
    line = line_of(
        *step(*launched(1000, 1010, 990, 1), launch(1500, 1300, 2), kernel("k", 2900, 3100, 2))
    )
    assert causes_of(line) == {LAUNCHING: 5_000, HOST: 800_000, DEVICE: 105_000}


def test_calls_of_the_driver_have_their_part_of_a_gap_and_nobody_else_has_it(line_of):
    """Of 900 us: 100 in cudaMalloc, 300 in cudaFree, and 100 idle after it."""
    events = step(
        *launched(1000, 1000, 1000, 1),
        call("cudaMalloc", 2050, 100, 2),
        call("cudaFree", 1900, 100, 3),  # while the device works
        call("cudaMalloc", 2300, 300, 4),
        *launched(2895, 2900, 3100, 5),
    )
    line = line_of(*events)
    causes = causes_of(line)
    assert causes[DRIVER] == sum(line.idle.of_driver.tolist())
    assert causes[DRIVER] + causes[HOST] == 900_000
    assert line.call_prices(line.driver_calls).tolist() == line.idle.of_driver.tolist()
    assert sum(line.wait_prices.tolist()) == 0


def test_what_the_profiler_does_for_itself_is_nobodys_gap(line_of):
    own = span("overhead", "Activity Buffer Request", 1300, 1500, pid=-1, tid=0)
    line = line_of(
        *step(*launched(1000, 1010, 100, 1), own, *launched(2950, 2960, 100, 2), us=2100)
    )
    causes = line.idle.by_cause()
    assert (causes[PROFILER], causes[HOST]) == (1_500_000, 345_000)
    assert len(line.idle.of_host()) == 0


@pytest.mark.parametrize(("at", "long"), [(2494.999, False), (2495.0, True)])
def test_a_gap_is_the_hosts_from_half_a_millisecond_on(line_of, at, long):
    """The launching call takes 5 us, so that the queue was empty for 499.999 or for 500 us."""
    line = line_of(*step(*launched(1000, 1000, 1000, 1), *launched(at, 2510, 3490, 2)))
    ns, found = round(1000 * (at + 5 - 2000)), line.idle
    causes = found.by_cause()
    assert (causes[HOST], causes[LAUNCHING]) == ((ns, 0) if long else (0, ns))
    assert launched_in(found, found.windows) == causes[LAUNCHING]
    assert len(found.of_host()) == long


@pytest.mark.parametrize(("us", "named"), [(300, 1), (301, 0)])
def test_a_long_gap_is_named_where_half_of_it_has_no_other_cause(line_of, us, named):
    loader = loading(2000, us)
    line = line_of(*step(*launched(1000, 1000, 1000, 1), loader, *launched(2595, 2600, 3400, 2)))
    assert line.idle.by_cause()[HOST] == 1000 * (600 - us)
    assert len(line.idle.of_host()) == named


def test_a_long_gap_inside_a_span_is_no_slow_launch_too(line_of):
    """Else OPT001 and KERN002 had the same time of an optimizer."""
    last = launched(3300, 3310, 2690, 3)
    line = line_of(*step(*launched(1000, 1010, 990, 1), *launched(2150, 2160, 340, 2), *last))
    everything = line.idle.windows
    assert line.idle.by_cause()[LAUNCHING] == launched_in(line.idle, everything) == 5_000 + 155_000
    assert line.idle.by_cause()[HOST] == 805_000


@given(
    st.lists(
        st.tuples(st.integers(0, 4000), st.integers(0, 900), st.integers(1, 900)), max_size=12
    ),
    st.booleans(),
)
def test_causes_add_up_to_the_idle_time(tmp_path_factory, kernels, marked):
    events = [mark(500, 1500), mark(2200, 2000, 2)] if marked else []
    for number, (at, delay, us) in enumerate(kernels, 1):
        events += launched(at, at + delay, us, number)
    events.append(op("aten::add", 0, 5000))
    line = Timeline.of(write(tmp_path_factory.mktemp("idle"), text(events)))
    if line.idle is None:
        assert not kernels
        return
    causes = line.idle.by_cause()
    assert min(causes.values()) >= 0
    assert sum(causes.values()) == line.idle.total
    assert line.idle.total == line.idle.windows.length - line.devices[0].busy.overlap(
        line.idle.windows
    )
