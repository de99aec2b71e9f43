"""Generators that a dataset brings into its workers: which are found, and which were drawn from."""

import random
import types

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, Subset

from auditor.capture.instruments import loader_workers as worker_generators
from auditor.capture.instruments.loader_workers import FirstBatch, generators_of

SHARED = np.random.default_rng(1)


class Rows:
    def __init__(self, **held):
        vars(self).update(held)


class Stream(IterableDataset):
    def __init__(self, rng):
        self.rng = rng

    def __iter__(self):
        yield self.rng.random()


def names(dataset, collate=None):
    return {name for name, _, _ in generators_of(dataset, collate)}


def test_generators_are_found_by_what_leads_to_them():
    rng, state = np.random.default_rng(2), np.random.RandomState(2)
    python, own = random.Random(2), torch.Generator()
    dataset = Rows(rng=rng, parts=[Rows(state=state)], named={"python": python}, again=rng)
    closed = (lambda rows: own and rows) if own else None
    assert names(dataset, closed) == {
        "dataset.rng",
        "dataset.parts[0].state",
        "dataset.named['python']",
        "collate_fn",
        "SHARED",
    }


def test_bound_methods_and_wrapped_datasets_lead_on():
    dataset = Subset(Rows(draw=random.Random(3).random, at=Rows(rng=np.random.default_rng(3))), [0])
    assert {"dataset.dataset.draw", "dataset.dataset.at.rng"} <= names(dataset)


def test_a_dataset_that_holds_itself_and_many_samples_ends(monkeypatch):
    dataset = Rows(samples=[Rows(a=1) for _ in range(10_000)])
    dataset.itself = dataset
    assert names(dataset) == {"SHARED"}
    monkeypatch.setattr(worker_generators, "VISITS", 1)
    assert names(Rows(rng=random.Random(1))) == set()


@pytest.fixture
def worker(monkeypatch):
    def set_up(count):
        info = types.SimpleNamespace(id=1, num_workers=count)
        monkeypatch.setattr(worker_generators, "get_worker_info", lambda: info)

    return set_up


def first(dataset):
    return FirstBatch(types.SimpleNamespace(dataset=dataset, collate_fn=None))


@pytest.mark.parametrize(
    ("made", "draw"),
    [
        (lambda: np.random.default_rng(4), lambda rng: rng.random()),
        (lambda: np.random.RandomState(4), lambda rng: rng.rand()),
        (lambda: random.Random(4), lambda rng: rng.random()),
        (lambda: torch.Generator().manual_seed(4), lambda rng: torch.rand(1, generator=rng)),
    ],
)
def test_only_what_was_drawn_from_is_told(worker, made, draw):
    worker(2)
    told = []
    for _ in range(2):
        dataset = Rows(used=made(), unused=made())
        seen = first(dataset)
        draw(dataset.used)
        told.append(list(seen.told()))
    assert [[(row["name"], row["worker"]) for row in rows] for rows in told] == [
        [("dataset.used", 1)]
    ] * 2
    assert told[0] == told[1]
    assert told[0][0]["before"] != told[0][0]["after"]
    assert (told[0][0]["owner"], told[0][0]["module"]) == ("Rows", __name__)


def test_one_worker_and_iterable_datasets_are_not_asked(worker):
    for count, dataset in ((1, Rows(rng=random.Random(5))), (2, Stream(random.Random(5)))):
        worker(count)
        seen = first(dataset)
        dataset.rng.random()
        assert list(seen.told()) == []


def test_looking_draws_nothing(worker):
    worker(2)
    dataset = Rows(rng=np.random.default_rng(6), python=random.Random(6))
    list(first(dataset).told())
    assert dataset.rng.random() == np.random.default_rng(6).random()
    assert dataset.python.random() == random.Random(6).random()
