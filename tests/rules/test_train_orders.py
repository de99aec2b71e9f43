"""TRAIN006 at both sides of its thresholds, and where its patch is written."""

from dataclasses import replace

import pytest
from auditor.rules.train.orders import SortedByClass

from auditor.evidence.recorded.batches import Batches, Loader
from auditor.evidence.source.files import Source
from auditor.model import Site
from tests.evidence.recorded.rows import batch
from tests.rules.asking import ask

LINE = "loader = DataLoader(data, batch_size=8)"
LOADER = Loader(
    0,
    made_at=Site("t.py", 1, "", LINE),
    length=8,
    dataset="TensorDataset",
    samples=64,
    sorted_classes=4,
)
BATCHES = tuple(batch(0, step, n=1, in_order=1) for step in range(10))


def found(loader=LOADER, batches=BATCHES, others=(), line=LINE, **knobs):
    table = Batches(loaders=(loader, *others), loud_steps=10, loud=batches)
    return list(ask(SortedByClass(**knobs), table, Source({"t.py": line})))


@pytest.mark.parametrize(
    ("changed", "knobs", "number"),
    [
        ({}, {}, 1),
        ({"length": 3}, {}, 1),
        ({"length": 2}, {}, 0),
        ({"length": 2}, {"fewest": 2}, 1),
        ({"samples": 16}, {}, 1),
        ({"samples": 15}, {}, 0),
        ({"samples": 15}, {"each": 3.0}, 1),
        ({"sorted_classes": 2}, {}, 1),
        ({"sorted_classes": 1}, {}, 0),
        ({"sorted_classes": None}, {}, 0),
        ({"samples": None}, {}, 0),
        ({"length": None}, {}, 0),
    ],
)
def test_loaders_at_the_thresholds(changed, knobs, number):
    assert len(found(replace(LOADER, **changed), **knobs)) == number


@pytest.mark.parametrize(
    ("taken", "knobs", "number"), [(9, {}, 1), (8, {}, 0), (8, {"share": 0.8}, 1)]
)
def test_most_steps_must_take_a_batch(taken, knobs, number):
    assert len(found(batches=BATCHES[:taken], **knobs)) == number


def test_every_batch_must_be_in_order():
    assert found(batches=(*BATCHES[:-1], batch(0, 9, n=1))) == []


def test_of_two_loaders_one_may_evaluate():
    other = replace(LOADER, number=1, sorted_classes=None)
    beside = tuple(batch(1, step, n=1, in_order=1) for step in range(10))
    assert found(batches=(*BATCHES, *beside), others=(other,)) == []
    assert len(found(batches=(*BATCHES, *beside[:8]), others=(other,))) == 1


@pytest.mark.parametrize(
    ("line", "written"),
    [
        (LINE, True),
        ("loader = DataLoader(data, 8, shuffle=False)", True),
        ("loader = DataLoader(data, 8, False)", False),
        ("loader = DataLoader(data, 8, shuffle=mixed)", False),
        ("loader = DataLoader(data, 8, sampler=SequentialSampler(data))", False),
        ("loader = DataLoader(data, **settings)", False),
        ("loader = DataLoader(*given)", False),
        ("one, two = DataLoader(a), DataLoader(b)", False),
        ("loader = made(data)", False),
    ],
)
def test_a_patch_is_written_where_the_call_says_no_order(line, written):
    (finding,) = found(line=line)
    edits = SortedByClass().remedy(finding).edits
    assert [(each.keyword, each.value) for each in edits] == [("shuffle", "True")] * written
