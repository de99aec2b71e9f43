"""The course of a device's memory: its peak, what nobody needed, what came back again."""

import pytest

from auditor.evidence.snapshot.history import Course, live_at_end

MIB = 2**20


def course(reserved=(100,), allocated=(70,), **more):
    facts = {"device": 0, "active": allocated, "time_us": (), "start_reserved": 0}
    facts |= {"start_allocated": 0, "device_allocs": (), "device_frees": (), "retries": 0}
    facts |= {"ooms": (), "untrusted": "", "history": None}
    return Course(reserved=reserved, allocated=allocated, **{**facts, **more})


def test_the_peak_and_what_was_reserved_from_then_on():
    one = course(reserved=(500, 120, 150, 130), allocated=(10, 80, 80, 60))
    assert (one.peak, one.peak_allocated, one.peak_reserved) == (1, 80, 500)
    assert (one.reserved_at_peak, one.unneeded_bytes) == (150, 70)
    assert one.unneeded_share == 70 / 150
    late = course((100, 90), (70, 60), start_allocated=75, start_reserved=110)
    assert (late.peak_allocated, late.peak_reserved, late.starts_late) == (75, 110, True)
    assert (late.unneeded_bytes, one.starts_late) == (0, False)
    early = course((100,), (70,), start_allocated=0, start_reserved=90)
    assert (early.starts_late, early.unneeded_bytes) == (False, 30)
    assert course((100,), (70,), start_allocated=1, start_reserved=90).unneeded_bytes == 10
    assert course((0,), (0,)).unneeded_share == 0.0


@pytest.mark.parametrize(
    ("reserved", "again"),
    [
        ((9, 9, 9, 9), 0),
        ((0, 0, 9, 5, 9, 9), 4),
        ((9, 5, 9, 9, 9, 9), 0),  # in the first half
        ((0, 9, 9, 5, 8, 6, 9), 6),
        ((0, 0, 0, 9, 5, 12), 4),
        ((0, 0, 4, 9, 9, 9), 0),
        ((9, 9, 9, 5, 6, 7), 2),
        ((9,), 0),
        ((9, 5, 9), 4),
    ],
)
def test_what_went_back_and_came_again_in_the_second_half(reserved, again):
    assert course(reserved, reserved).late_churn == again


def test_facts():
    one = course((100 * MIB,), (75 * MIB,), retries=2, ooms=(0,), device_allocs=(1, 2, 3))
    assert one.facts == (
        ("peak allocated", "75 MiB"),
        ("reserved then", "100 MiB"),
        ("allocator retries", "2"),
        ("out of memory", "1"),
        ("memory obtained and returned", "3 and 0 times"),
        ("obtained again, second half", "0 B"),
        ("events in the history", "1"),
    )


def test_live_blocks_of_segments_by_their_addresses():
    blocks = [
        {"state": "active_allocated", "size": 5},
        {"state": "inactive", "size": 3},
        {"state": "active_pending_free", "size": 2},
    ]
    segments = [{"address": 100, "blocks": blocks}, {"blocks": blocks[:1]}]
    assert live_at_end(segments) == {100: 5, 108: 2, 0: 5}
    assert live_at_end(segments, pending=False) == {100: 5, 0: 5}
