"""Replays of memory snapshots: what they reserve against what was recorded, also where the history
begins late.
"""

import pickle

import pytest

from auditor.allocator import CachingAllocator, OutOfMemory
from auditor.evidence.snapshot.file import snapshot_of
from auditor.evidence.snapshot.history import Allocations
from auditor.evidence.snapshot.what_if import AGREES, card_of, replays_of
from auditor.evidence.table import Evidence
from auditor.recordings.standalone import SnapshotRecording

MIB = 2**20


def at(line):
    return ({"filename": "/home/user/train.py", "line": line, "name": "step"},)


@pytest.fixture
def bare(tmp_path):
    """A snapshot that stands alone, with this allocator's history."""

    def write(allocator):
        (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(allocator.snapshot()))
        return Evidence(SnapshotRecording(tmp_path / "snapshot.pickle"))

    return write


def sliding(allocator, steps=20):
    """A large block that comes and goes, and eight smaller ones of which the oldest goes: they
    settle in each other's holes.
    """
    kept = []
    for _ in range(steps):
        allocator.free(allocator.malloc(96 * MIB, frames=at(1)))
        kept.append(allocator.malloc(56 * MIB, frames=at(2)))
        if len(kept) > 8:
            allocator.free(kept.pop(0))
    return allocator


def agreement(recording):
    """Predicted over recorded peak of each device whose history can be replayed."""
    for course in recording.get(Allocations).devices:
        if course.untrusted:
            continue
        predicted = replays_of(recording, course).under("", card_of(course, snapshot_of(recording)))
        assert predicted.retries == course.retries
        yield predicted.peak_reserved / course.peak_reserved


@pytest.mark.parametrize("limit", [None, 60, 30, 7])
@pytest.mark.parametrize("card", [1 << 40, 1000 * MIB])
def test_a_replay_reserves_what_was_recorded(bare, card, limit):
    allocator = sliding(CachingAllocator(card, history_limit=limit))
    if card < 1 << 40:
        with pytest.raises(OutOfMemory):
            allocator.malloc(600 * MIB, frames=at(3))
    (ratio,) = agreement(bare(allocator))
    assert abs(ratio - 1) <= AGREES
