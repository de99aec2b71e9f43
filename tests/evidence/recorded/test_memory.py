"""Memory step by step: host and device, and from which shares on it counts as fragmented."""

import pytest
from auditor.rules.mem.segments import DeviceMemory, HostMemory, ReservedMemoryNeverNeeded

from auditor.evidence.recorded.steps import Step
from tests.evidence.recorded.rows import steps

MIB = 1 << 20


def at(number, allocated=1, reserved=0, peak=0, retries=0, ooms=0):
    facts = {"allocated": allocated, "reserved": reserved, "peak_allocated": peak}
    facts |= {"retries": retries, "ooms": ooms}
    return Step(number, 1.0, **facts)


@pytest.mark.parametrize(("said", "usable"), [("4096", 4096), ("much", 0), ("", 0), (None, 0)])
def test_host_memory_is_that_of_quiet_steps(seen, said, usable):
    environment = {} if said is None else {"host_memory": said}
    rows = steps(3, "quiet", rss=7) + steps(1, "quiet", rss=0) + steps(5, rss=99)
    table = seen(steps=rows, manifest={"environment": environment}).get(HostMemory)
    assert (table.trend.values, table.usable) == ((7.0, 7.0, 7.0), usable)


def test_reserved_is_that_of_the_last_step_with_the_highest_peak():
    table = DeviceMemory(
        (
            at(0, reserved=100, peak=80),
            at(1, reserved=70, peak=80, retries=2),
            at(2, reserved=500, peak=60, ooms=3),
        )
    )
    assert (table.peak_allocated, table.reserved_at_peak, table.unneeded_bytes) == (80, 70, 0)
    assert (table.retries, table.ooms, table.unneeded_share) == (2, 3, 0.0)
    empty = DeviceMemory()
    assert (empty.peak_allocated, empty.reserved_at_peak, empty.unneeded_bytes) == (0, 0, 0)
    assert (empty.retries, empty.ooms, empty.unneeded_share, empty.trend.values) == (0, 0, 0.0, ())


@pytest.mark.parametrize(
    ("change", "least", "fragmented"),
    [
        ({}, 30, True),
        ({}, 31, False),
        ({"peak": 71}, 0, False),
        ({"retries": 1, "peak": 90}, 99, True),
        ({"ooms": 1, "peak": 90}, 99, True),
        ({"ooms": 1, "peak": 91}, 0, False),
        ({"retries": 1, "peak": 100}, 0, False),
    ],
    ids=str,
)
def test_fragmented_on_both_sides_of_each_border(change, least, fragmented):
    table = DeviceMemory((at(0, **{"reserved": 100, "peak": 70, **change}),))
    rule = ReservedMemoryNeverNeeded(share=0.3, least_mib=least / MIB)
    assert rule.fragmented(table) is fragmented


def test_nothing_unneeded_is_never_fragmented():
    table = DeviceMemory((at(0, reserved=100, peak=100, ooms=1),))
    rule = ReservedMemoryNeverNeeded(share=0.0, least_mib=0.0, share_if_pressed=0.0)
    assert not rule.fragmented(table)
