"""Blocks that stay, by thirds of the history; cached memory that comes and goes."""

import pickle

import pytest
from auditor.rules.sync.waiting import CacheChurn

from auditor.allocator import CachingAllocator
from auditor.evidence.snapshot.state_at import NeverFreed
from auditor.evidence.table import Evidence
from auditor.recordings.standalone import SnapshotRecording

MIB = 1 << 20


def at(line, name="step"):
    return ({"filename": "/home/user/train.py", "line": line, "name": name},)


@pytest.fixture
def evidence(tmp_path):
    def of(allocator):
        (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(allocator.snapshot()))
        return Evidence(SnapshotRecording(tmp_path / "snapshot.pickle"))

    return of


def kept(evidence, *lines):
    """The table where each of these lines allocates a block that stays, of 2 MiB each from the
    first on; 0 allocates one that is freed at once.
    """
    allocator = CachingAllocator(1 << 40)
    for line in lines:
        block = allocator.malloc(2 * MIB, frames=at(line))
        if not line:
            allocator.free(block)
    return [
        (each.site.line, each.thirds, each.blocks)
        for each in evidence(allocator).get(NeverFreed).lines
    ]


# -- cached memory ---------------------------------------------------------------------------------


def flushing(evidence, steps=10, *, flush=(6, 7), line=8, name="empty_cache"):
    allocator = CachingAllocator(1 << 40)
    for step in range(steps):
        block = allocator.malloc(30 * MIB, frames=at(4))
        allocator.free(block)
        if step in flush:
            frames = ({"filename": "/torch/cuda/memory.py", "line": 1, "name": name}, *at(line))
            allocator.empty_cache(frames=frames)
    return evidence(allocator).get(CacheChurn)


@pytest.mark.parametrize(
    ("flush", "flushes", "again"),
    [((), 0, 0), ((0, 1), 0, 0), ((0, 1, 9), 1, 0), ((8,), 1, 30), (range(10), 5, 120)],
)
def test_those_of_the_first_half_do_not_count(evidence, flush, flushes, again):
    table = flushing(evidence, flush=flush)
    assert (table.flushes, table.again_bytes // MIB) == (flushes, again)
