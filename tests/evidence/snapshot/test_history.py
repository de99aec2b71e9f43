"""The course of a device's memory: its peak, what nobody needed, what came back again."""

import pytest

from auditor.evidence.snapshot.history import Course, live_at_end


def course(reserved=(100,), allocated=(70,), **more):
    facts = {"device": 0, "time_us": (), "start_reserved": 0, "start_allocated": 0}
    facts |= {"retries": 0, "ooms": (), "untrusted": "", "history": None}
    return Course(reserved=reserved, allocated=allocated, **{**facts, **more})


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


def test_live_blocks_of_segments_by_their_addresses():
    blocks = [
        {"state": "active_allocated", "size": 5},
        {"state": "inactive", "size": 3},
        {"state": "active_pending_free", "size": 2},
    ]
    segments = [{"address": 100, "blocks": blocks}, {"blocks": blocks[:1]}]
    assert live_at_end(segments) == {100: 5, 108: 2, 0: 5}
    assert live_at_end(segments, pending=False) == {100: 5, 0: 5}
