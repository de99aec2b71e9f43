"""The line whose sizes vary, on histories of the simulated allocator."""

from __future__ import annotations

import pickle
from itertools import count
from types import SimpleNamespace

import pytest
from auditor.rules.mem import varying_sizes
from auditor.rules.mem.size_origin import Definitions
from auditor.rules.mem.varying_sizes import (
    Outcomes,
    Varying,
    VaryingSizes,
    _bounds,
    _grows,
    _loaders,
    _rank_correlation,
    _ranks,
)

from auditor.allocator import CachingAllocator
from auditor.evidence.table import Evidence
from auditor.model import Site
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


def test_the_first_line_that_the_rest_follows(table):
    found = table(*steps_of(LENGTHS))
    assert found.steps == len(LENGTHS)
    assert found.varying.site.line == 5
    assert found.varying.sizes == tuple(length * 512 for length in LENGTHS)
    assert not found.varying.grows


def test_what_varies_on_its_own_is_not_the_cause(table):
    unrelated = [3, 1, 2, 1, 3, 2, 1, 3, 1, 2]
    steps = [
        [(3, number * 512, False), *step]
        for number, step in zip(unrelated, steps_of(LENGTHS), strict=True)
    ]
    assert table(*steps).varying.site.line == 5


def test_steps_of_one_size_have_no_cause(table):
    found = table(*steps_of([40] * 8))
    assert (found.steps, found.varying) == (8, None)


@pytest.mark.parametrize(("steps", "found"), [(6, 6), (5, 0)])
def test_fewer_steps_say_nothing(table, steps, found):
    assert table(*steps_of(LENGTHS[:steps])).steps == found


@pytest.mark.parametrize(("others", "found"), [(6, 6), (7, 0)])
def test_steps_of_another_course_are_left_out(table, others, found):
    courses = [[(number + 10, MIB, False)] for number in range(others)]
    assert table(*courses, *steps_of(LENGTHS[:6])).steps == found


def test_a_small_program_is_enlarged_and_a_large_one_is_not(table):
    small = table(*steps_of(LENGTHS)).varying.outcomes
    assert small.scale > 1.0
    assert small.peak == pytest.approx(varying_sizes.TYPICAL, rel=0.05)
    assert small.share > 0.2
    large = table(*steps_of(LENGTHS, unit=20 * MIB)).varying.outcomes
    assert large.scale == 1.0
    assert large.share > 0.1
    edge = (varying_sizes.SMALL_PEAK - 8 * MIB) // MIB
    assert table(*steps_of([*LENGTHS, edge - 2])).varying.outcomes.scale > 1.0
    assert table(*steps_of([*LENGTHS, edge])).varying.outcomes.scale == 1.0


def test_weights_are_not_enlarged(table):
    held = 100 * MIB
    outcomes = table(*steps_of(LENGTHS), weights=held).varying.outcomes
    assert outcomes.scale * 78 * MIB == pytest.approx(varying_sizes.TYPICAL - held, rel=0.01)


@pytest.mark.parametrize(("unit", "replayed"), [(14 * 1024, True), (12 * 1024, False)])
def test_steps_below_a_mebibyte_are_not_enlarged(table, unit, replayed):
    assert (table(*steps_of(LENGTHS, unit=unit)).varying.outcomes != Outcomes()) is replayed


def test_two_sizes_are_not_replayed(table):
    assert table(*steps_of([40, 60] * 5)).varying.outcomes == Outcomes()
    assert table(*steps_of([40, 60, 50] * 4)).varying.outcomes != Outcomes()


def test_the_longest_first_is_left_in_its_order(table):
    ordered = table(*steps_of(sorted(LENGTHS, reverse=True))).varying.outcomes
    shuffled = table(*steps_of([70, *(each for each in LENGTHS if each != 70)])).varying.outcomes
    assert ordered.share < 0.1 < shuffled.share


def test_what_is_held_and_grows(table):
    def bank(*, kept):
        return [
            [(4, 8 * MIB, False), (6, number * MIB, False), (7, MIB, kept)]
            for number in range(1, 10)
        ]

    assert table(*bank(kept=True)).varying.grows
    assert not table(*bank(kept=False)).varying.grows


def test_numbers_of_sizes():
    varying = Varying(Site("a.py", 1), (100, 300, 500, 200, 200, 100), Outcomes())
    assert (varying.distinct, varying.late, varying.spread, varying.grid) == (4, 2, 5.0, 5)
    assert Varying(Site("a.py", 1), (7, 7), Outcomes()).grid == 1


def test_a_step_is_rounded_up_to_the_largest_of_its_quarter():
    assert _bounds([5, 1, 8, 2, 7, 3, 6, 4]) == {1: 3, 3: 3, 5: 7, 7: 7, 0: 6, 6: 6, 4: 2, 2: 2}


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
    ("reserved", "fixed", "extra", "share"),
    [(100, 80, 20, 0.2), (100, 100, 0, 0.0), (80, 100, 0, 0.0), (0, 0, 0, 0.0), (4, 0, 4, 1.0)],
)
def test_what_one_size_would_have_saved(reserved, fixed, extra, share):
    came = Outcomes(reserved=reserved, fixed=fixed)
    assert (came.extra, came.share) == (extra, share)


@pytest.mark.parametrize(
    ("sizes", "distinct", "late", "spread", "grid"),
    [
        ((5,), 1, 1, 1.0, 1),
        ((1, 2, 3), 3, 2, 3.0, 3),
        ((1, 1, 2, 2), 2, 1, 2.0, 2),
        ((0, 5), 2, 1, 5.0, 2),
        ((10, 20, 40), 3, 2, 4.0, 4),
        ((40, 20, 10), 3, 2, 4.0, 4),
        ((9, 9, 9), 1, 1, 1.0, 1),
    ],
)
def test_sizes_in_numbers(sizes, distinct, late, spread, grid):
    one = Varying(Site("a.py", 1), sizes, Outcomes())
    assert (one.distinct, one.late, one.spread, one.grid) == (distinct, late, spread, grid)


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


@pytest.mark.parametrize(
    ("number", "quarters"),
    [(1, [0]), (4, [0, 1, 2, 3]), (5, [1, 1, 3, 3, 4]), (8, [1, 1, 3, 3, 5, 5, 7, 7])],
)
def test_quarters_of_few_steps(number, quarters):
    assert _bounds(list(range(number))) == dict(enumerate(quarters))


def test_ranks_of_ties_are_their_mean():
    assert _ranks([30, 10, 20, 10]) == [3.0, 0.5, 2.0, 0.5]
    assert _ranks([]) == []


def test_what_was_replayed_is_the_same_each_time(table):
    """Of a deterministic allocator, orders and scale: to the byte."""
    found = table(*steps_of(LENGTHS), weights=100 * MIB).varying.outcomes
    base, peak = 100 * MIB, 100 * MIB + 8 * MIB + 70 * (MIB + 512)
    assert found.scale == pytest.approx((varying_sizes.TYPICAL - base) / (peak - base))
    assert (found.peak, found.reserved) == (17_181_057_024, 39_296_434_176)
    assert (found.fixed, found.bucketed) == (17_194_549_248, 40_391_147_520)
    assert found.expandable == 17_196_646_400


def test_what_earlier_steps_keep_is_no_part_of_the_base(table):
    steps = [
        [(4, 8 * MIB, False), (5, length * MIB, False), (7, 4 * MIB, True)]
        for length in sorted(LENGTHS)
    ]
    outcomes = table(*steps, weights=64 * MIB).varying.outcomes
    peak = 64 + 8 + 70 + 4 * len(steps)
    expected = (varying_sizes.TYPICAL - 64 * MIB) / ((peak - 64) * MIB)
    assert outcomes.scale == pytest.approx(expected)


@pytest.mark.parametrize("few", [[40, 60], [40, 60, 50]])
def test_a_peak_of_a_mebibyte_is_the_least(table, few):
    def worth(unit):
        steps = [[(5, length * unit, False)] for length in few * 4]
        return table(*steps).varying.outcomes != Outcomes()

    assert worth(MIB // 60 // 512 * 512 + 512) is (len(few) == 3)


@pytest.mark.parametrize(
    ("rows", "definitions"),
    [
        ([], None),
        ([{}], ((), ())),
        ([{"collate_file": "/h/a.py", "collate_line": 3}], ((("a.py", 3),), ())),
        ([{"collate_file": "/h/a.py"}], ((("a.py", 0),), ())),
        ([{"dataset_file": "/h/b.py", "dataset_line": 4}], ((), (("b.py", 4),))),
        ([{"dataset_file": "/h/b.py"}], ((), (("b.py", 0),))),
    ],
)
def test_what_loaders_are_made_of(rows, definitions):
    none = dict.fromkeys(("collate_file", "collate_line", "dataset_file", "dataset_line"))
    made = [SimpleNamespace(**{**none, **row}) for row in rows]
    evidence = SimpleNamespace(
        rows=lambda kind: made, recording=SimpleNamespace(relative=lambda file: file[3:])
    )
    found = _loaders(evidence)
    assert found == (None if definitions is None else Definitions(*definitions))
