"""The line whose sizes vary, on histories of the simulated allocator."""

import pickle
from itertools import count
from types import SimpleNamespace

import pytest
from auditor.rules.mem import varying_sizes
from auditor.rules.mem.varying_sizes import VaryingSizes, _grows, _rank_correlation

from auditor.allocator import CachingAllocator
from auditor.evidence.table import Evidence
from auditor.recordings.standalone import SnapshotRecording

MIB = 1 << 20
LENGTHS = (40, 61, 33, 70, 52, 45, 66, 38, 57, 49)


def at(line):
    return ({"filename": "/home/user/train.py", "line": line, "name": "step"},)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """The table of steps, each a list of (line, bytes, kept); each line's blocks are freed at the
    end of the step, unless they are kept.
    """

    def made(*steps, weights=0):
        clock = count(1)
        allocator = CachingAllocator(1 << 44)
        allocator.malloc(max(512, weights), frames=at(1), now_us=next(clock))
        begun = []
        for step in steps:
            begun.append(SimpleNamespace(unix_us=next(clock)))
            blocks = [
                (allocator.malloc(size, frames=at(line), now_us=next(clock)), kept)
                for line, size, kept in step
            ]
            for block, kept in blocks:
                if not kept:
                    allocator.free(block, next(clock))
        (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(allocator.snapshot()))
        evidence = Evidence(SnapshotRecording(tmp_path / "snapshot.pickle"))
        monkeypatch.setattr(evidence, "rows", lambda kind: begun if kind.part == "steps" else [])
        return evidence.get(VaryingSizes)

    return made


def steps_of(lengths, *, unit=MIB):
    return [
        [(4, 8 * unit, False), (5, length * 512, False), (6, length * unit, False)]
        for length in lengths
    ]


def test_what_varies_on_its_own_is_not_the_cause(table):
    unrelated = [3, 1, 2, 1, 3, 2, 1, 3, 1, 2]
    steps = [
        [(3, number * 512, False), *step]
        for number, step in zip(unrelated, steps_of(LENGTHS), strict=True)
    ]
    assert table(*steps).varying.site.line == 5


@pytest.mark.parametrize(("steps", "found"), [(6, 6), (5, 0)])
def test_fewer_steps_say_nothing(table, steps, found):
    assert table(*steps_of(LENGTHS[:steps])).steps == found


@pytest.mark.parametrize(("others", "found"), [(6, 6), (7, 0)])
def test_steps_of_another_course_are_left_out(table, others, found):
    courses = [[(number + 10, MIB, False)] for number in range(others)]
    assert table(*courses, *steps_of(LENGTHS[:6])).steps == found


def test_a_small_program_is_enlarged_and_a_large_one_is_not(table):
    small = table(*steps_of(LENGTHS)).varying
    assert small.scale > 1.0 and small.extra > small.reserved / 5
    large = table(*steps_of(LENGTHS, unit=20 * MIB)).varying
    assert large.scale == 1.0 and large.extra > large.reserved / 10
    edge = (varying_sizes.SMALL_PEAK - 8 * MIB) // MIB
    assert table(*steps_of([*LENGTHS, edge - 2])).varying.scale > 1.0
    assert table(*steps_of([*LENGTHS, edge])).varying.scale == 1.0


@pytest.mark.parametrize(("unit", "replayed"), [(14 * 1024, True), (12 * 1024, False)])
def test_steps_below_a_mebibyte_are_not_replayed(table, unit, replayed):
    assert bool(table(*steps_of(LENGTHS, unit=unit)).varying.reserved) is replayed


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([1, 2, 3], [10, 40, 90], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 1, 1], [1, 2, 3], 0.0),
        ([1, 1, 2, 2], [1, 2, 3, 4], 0.894),
    ],
)
def test_rank_correlation(one, other, expected):
    assert _rank_correlation(one, other) == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize(
    ("sizes", "ends", "grows"),
    [
        ([1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5], True),
        ([1, 2, 3, 4, 5, 5], [0, 1, 2, 3, 4, 5], True),  # four rises of five
        ([1, 2, 3, 4, 4, 4], [0, 1, 2, 3, 4, 5], False),
        ([0, 2, 4, 6, 8, 10], [7, 8, 9, 10, 11, 12], True),  # half of it is held
        ([0, 2, 4, 6, 8, 11], [7, 8, 9, 10, 11, 12], False),
        ([6, 5, 4, 3, 2, 1], [0, 1, 2, 3, 4, 5], False),
    ],
)
def test_growth_that_is_held(sizes, ends, grows):
    assert _grows(sizes, ends) is grows
