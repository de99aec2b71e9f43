"""Histories of torch's own caching allocator, replayed on ours where no CUDA build is.

Recorded on the null device by ``python -m tests.cuda.allocator_recorder tests/allocator/histories
kept``; tests/cuda/test_allocator_held_to_torch.py holds that torch still does the same.
"""

from pathlib import Path

import pytest

from tests.allocator.held import STATS, Event, Recording, held

HISTORIES = Path(__file__).resolve().parent / "histories"
PATHS = sorted(HISTORIES.glob("*.json.gz"))


@pytest.fixture(params=PATHS, ids=[path.name for path in PATHS])
def recording(request):
    return Recording.read(request.param)


def test_ours_does_the_same_event_by_event(recording):
    found = held(recording)
    assert found.difference is None
    assert found.events == len(recording.events)
    assert found.samples > 50
    assert found.peak_reserved == recording.samples[-1][1][STATS.index("reserved_bytes.all.peak")]


def test_they_hold_every_way_of_the_allocator():
    found = [Recording.read(path) for path in PATHS]
    actions = {event.action for each in found for event in each.events}
    assert actions == {
        "alloc",
        "free_requested",
        "free_completed",
        "segment_alloc",
        "segment_free",
        "segment_map",
        "segment_unmap",
        "oom",
    }
    assert len({each.settings for each in found}) >= 5
    assert any(len({event.stream for event in each.events}) > 2 for each in found)


def _changed(recording, position, **change):
    events = list(recording.events)
    events[position] = events[position]._replace(**change)
    return events


def test_a_segment_of_another_size_is_seen(recording):
    gains = ("segment_alloc", "segment_map")
    at = [each.action in gains for each in recording.events].index(True)
    recording.events = _changed(recording, at, size=recording.events[at].size + 512)
    assert "event" in held(recording).difference


def test_a_block_at_another_place_is_seen(recording):
    at = max(i for i, each in enumerate(recording.events) if each.action == "alloc")
    recording.events = _changed(recording, at, address=recording.events[at].address + 512)
    assert f"event {at}: torch" in held(recording).difference


def test_another_statistic_is_seen(recording):
    place = STATS.index("inactive_split_bytes.small_pool.current")
    recording.samples[-1][1][place] += 512
    assert "inactive_split_bytes.small_pool.current" in held(recording).difference


def test_another_layout_is_seen(recording):
    recording.layouts[-1][1][-1][4][-1][0] += 512
    assert "segment" in held(recording).difference


def test_a_segment_that_torch_took_by_itself_is_seen(recording):
    recording.events.append(Event("segment_alloc", 1 << 40, 2 << 20, 0))
    assert "by itself" in held(recording).difference
