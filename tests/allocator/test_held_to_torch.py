"""Histories of torch's own caching allocator, replayed on ours where no CUDA build is.

Recorded on the null device by ``python -m tests.cuda.allocator_recorder tests/allocator/histories
kept``; tests/cuda/test_allocator_held_to_torch.py holds that torch still does the same.
"""

from pathlib import Path

import pytest

from tests.allocator.held import STATS, Recording, held

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


def test_another_statistic_is_seen(recording):
    place = STATS.index("inactive_split_bytes.small_pool.current")
    recording.samples[-1][1][place] += 512
    assert "inactive_split_bytes.small_pool.current" in held(recording).difference
