"""Calls of the driver: how many, how long, on which steps."""

import pytest
from auditor.rules.sync.driver_calls import DriverCalls

from auditor.model.what_if import Change

CALLS = DriverCalls("cudaMalloc", 4, 80.0, (2, 0, 1, 1), (0.0,) * 4)


def test_words():
    assert CALLS.told(timed=True) == "4 calls, 20 us each"
    assert CALLS.told(timed=True, each=False) == "4 calls, 80 us"
    assert CALLS.told(timed=False) == "4 calls"


@pytest.mark.parametrize(
    ("api", "pins"), [("cudaMalloc", False), ("cudaHostAlloc", True), ("cudaFreeHost", True)]
)
def test_memory_of_the_host_or_the_device(api, pins):
    assert DriverCalls(api, 1, 1.0, (), ()).pins is pins


def test_on_which_steps():
    assert (CALLS.pattern().seen, CALLS.pattern().of) == ((0, 2, 3), 4)
    assert (CALLS.pattern(1).seen, CALLS.pattern(1).of) == ((1, 2), 3)


def test_a_replay_leaves_out_the_calls_of_the_steps_after_the_first():
    calls = DriverCalls("cudaMalloc", 3, 30.0, (2, 0, 1), (0.0,) * 3, rows=((4, 7), (), (9,)))
    assert calls.without() == Change("calls", (4, 7, 9))
    assert calls.without(after=1) == Change("calls", (9,))
