"""Calls of the driver: how many, how long, on which steps."""

import pytest
from auditor.rules.sync.driver_calls import DriverCalls

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
    assert (CALLS.pattern.seen, CALLS.pattern.of) == ((1, 2), 3)
