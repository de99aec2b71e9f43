"""What pageable copies lose: their device time beside that of the same bytes, pinned."""

import pytest

from auditor.evidence.table import Evidence
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.recordings.standalone import TraceRecording
from auditor.timeline import Timeline
from auditor.timeline.device import LARGE, LINK_GBS, OVERHEAD_NS
from tests.timeline.kineto import call, kernel, launch, loop, memcpy, op, text, write

MB = 1_000_000
UP, DOWN = "HtoD (Pageable -> Device)", "DtoH (Device -> Pageable)"


def copy(start, us, number, kind=UP, size=154 * MB, **more):
    """A copy by ``aten::to`` whose call returns when it has arrived."""
    return [
        op("aten::to", start, us + 30),
        op("aten::copy_", start + 1, us + 25),
        call("cudaMemcpyAsync", start + 5, us + 10, number),
        memcpy(kind, start + 10, us, number, size, **more),
    ]


def copies(*kinds, us=35_000, size=154 * MB):
    """Three steps with a copy of each kind, one after the other, and a kernel behind them."""

    def body(number, start):
        events = []
        for place, kind in enumerate(kinds):
            events += copy(start + 100 + (us + 100) * place, us, 100 * number + place, kind, size)
        behind = start + 200 + (us + 100) * len(kinds)
        return [
            *events,
            launch(behind, 5, 100 * number + 99),
            kernel("k", behind + 6, 500, 100 * number + 99),
        ]

    return loop(3, 200_000.0, body)


@pytest.fixture
def line_of(tmp_path):
    return lambda *events: Timeline.of(write(tmp_path, text(events)))


@pytest.fixture
def recorded(tmp_path):
    return lambda *events: Evidence(TraceRecording(write(tmp_path, text(events))))


def pinned_us(size, gbs=LINK_GBS):
    return OVERHEAD_NS / 1e3 + size / gbs / 1e3


@pytest.mark.parametrize(("kind", "cause"), [(UP, "copy to device"), (DOWN, "copy to host")])
def test_a_pageable_copy_is_priced_by_its_bandwidth(recorded, kind, cause):
    """35 ms at 4.4 GB/s: the device idled for 64 us after it, and that was its price."""
    (place,) = recorded(*copies(kind)).get(TraceWaits).of(cause, asynchronous=True)
    assert place.amount == "147 MiB each at 4.4 GB/s"
    assert place.slow_us / 3 == pytest.approx(35_000 - pinned_us(154 * MB), rel=1e-3)
    assert place.lost_us_per_step == pytest.approx(place.slow_us / 3 + place.won_us_per_step)
    assert dict(place.facts)["pinned memory reaches"].startswith(
        "12 GB/s (PCIe 3.0 x16; later links reach more): 22.2 ms per step less"
    )


@pytest.mark.parametrize(
    ("number", "size", "seen"), [(3, LARGE, True), (2, LARGE, False), (3, LARGE - 1, False)]
)
def test_a_rate_needs_three_large_copies(line_of, number, size, seen):
    events = [
        event
        for place in range(number)
        for event in copy(100 * place, 50, place + 1, "DtoH (Device -> Pinned)", size)
    ]
    rate = line_of(*events).pageable
    assert (rate.to_host.seen, rate.to_device.seen) == (seen, False)


def test_what_a_kernel_hides_is_not_lost(line_of):
    beside = [
        event
        for number in (1, 2, 3)
        for event in (kernel("k", 200_000.0 * number, 20_110, 9_000 + number, stream=9),)
    ]
    found = line_of(*copies(UP) + beside)
    share = 1 - pinned_us(154 * MB) / 35_000
    assert found.pageable.slow_ns.sum() / 3e3 == pytest.approx(15_000 * share, rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "us", "size"),
    [
        ("HtoD (Pinned -> Device)", 35_000, 154 * MB),  # slow, and yet pinned: the link is
        (UP, 35_000, -1),  # AMD before 2024 does not say how much
        (UP, 35_000, 420 * MB),  # 12 GB/s
        (DOWN, 9, 4),  # .item()
    ],
)
def test_nothing_is_lost(line_of, kind, us, size):
    assert line_of(*copies(kind, us=us, size=size)).pageable.slow_ns.sum() == 0


def test_both_ways_at_once_cost_once_each_and_nothing_twice(line_of):
    """Of copies of one direction that overlap the common time counts for the first."""
    events = [*copy(1000, 30_000, 1), *copy(11_000, 30_000, 2, stream=8)]
    slow = line_of(*events).pageable.slow_ns
    share = 1 - pinned_us(154 * MB) / 30_000
    assert sorted(slow.tolist()) == pytest.approx(
        [10_000_000 * share, 30_000_000 * share], rel=1e-3
    )
