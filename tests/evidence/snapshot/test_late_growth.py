"""Memory obtained late for sizes not met before, on histories of the simulated allocator."""

from __future__ import annotations

import pickle

import pytest
from auditor.rules.mem.mem008_variable_sizes import SMALL, LateGrowth, _rise

from auditor.allocator import CachingAllocator
from auditor.evidence.table import Evidence
from auditor.recordings.standalone import SnapshotRecording

MIB = 1 << 20


def at(line):
    return ({"filename": "/home/user/train.py", "line": line, "name": "step"},)


@pytest.fixture
def growth(tmp_path):
    """The table of a history in which each of these sizes lives alone, with its line."""

    def made(*sizes, keep=()):
        allocator = CachingAllocator(1 << 40)
        for number, (size, line) in enumerate(sizes):
            address = allocator.malloc(size, frames=at(line))
            if number not in keep:
                allocator.free(address)
        (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(allocator.snapshot()))
        return Evidence(SnapshotRecording(tmp_path / "snapshot.pickle")).get(LateGrowth)

    return made


@pytest.mark.parametrize(
    ("start", "column", "rise"),
    [
        (0, (5, 9), 4),
        (0, (9, 5), 0),
        (20, (5, 9), 0),
        (7, (5, 9), 2),
        (0, (5, 6, 9), 4),
        (0, (9,), 9),
        (0, (3, 8, 8, 8), 0),
        (0, (3, 8, 9, 8), 1),
    ],
)
def test_the_rise_of_the_second_half(start, column, rise):
    assert _rise(start, column) == rise


def test_new_sizes_that_needed_memory_although_enough_was_free(growth):
    sizes = [(n * 30 * MIB, 4) for n in (1, 2, 3)] + [(n * 30 * MIB, 4) for n in (4, 5, 3)]
    table = growth(*sizes, (200 * MIB, 9))
    assert (table.reserved, table.allocated, table.wasted_bytes) == (
        350 * MIB,
        110 * MIB,
        240 * MIB,
    )
    assert table.peak_reserved == 650 * MIB
    line, once = table.lines
    assert (once.site.line, once.known, once.new) == (9, (), (200 * MIB,))
    assert line.site.line == 4
    assert line.known == tuple(n * 30 * MIB for n in (1, 2, 3))
    assert line.new == (120 * MIB, 150 * MIB)


def test_a_program_that_needs_more_wastes_nothing(growth):
    table = growth(*[(30 * MIB, 4)] * 8, keep=range(8))
    assert (table.reserved, table.allocated, table.wasted_bytes) == (120 * MIB, 120 * MIB, 0)
    assert table.lines == ()


def test_small_requests_come_from_small_segments(growth):
    assert SMALL == MIB
    rounds = [(size, 4) for size in (64 * MIB, SMALL, SMALL // 2, SMALL // 4)]
    assert growth(*rounds).lines == ()
