"""Lists of arrays that become tensors: what counts as one, and what torch's functions still do."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from auditor.capture.instruments.loader_workers import ArrayLists, arrays_in
from auditor.capture.instruments.monkeypatch import Patches

ROW = np.ones(3, dtype=np.float32)


@pytest.mark.parametrize(
    ("data", "arrays"),
    [
        ([ROW, ROW], 2),
        ((ROW,), 1),
        ([[ROW, ROW], [ROW, ROW]], 4),
        ([[[ROW]]], 1),
        ([[[[ROW]]]], 0),
        ([np.array(1.0)], 0),
        ([np.float32(1.0)], 0),
        ([1.0, 2.0], 0),
        ([], 0),
        (ROW, 0),
        (None, 0),
        ("rows", 0),
        ([torch.ones(3)], 0),
    ],
)
def test_what_counts(data, arrays):
    assert arrays_in(data) == arrays


def test_calls_are_counted_by_place_and_the_functions_are_put_back():
    before, patches, places = (
        (torch.tensor, torch.as_tensor),
        Patches(),
        iter(["a", "b", "a", None]),
    )
    lists = ArrayLists(lambda: next(places))
    lists.watch(patches.attribute)
    try:
        made = [
            torch.tensor([ROW, ROW], dtype=torch.float64),
            torch.as_tensor(data=[ROW]),
            torch.tensor([ROW]),
            torch.tensor([ROW]),
            torch.tensor([1.0, 2.0]),
        ]
        with pytest.raises(TypeError):
            torch.tensor()
    finally:
        patches.undo()
    assert (torch.tensor, torch.as_tensor) == before
    assert [tuple(each.shape) for each in made] == [(2, 3), (1, 3), (1, 3), (1, 3), (2,)]
    assert made[0].dtype == torch.float64
    seen = lists.taken()
    wanted = {"a": (2, 3, 9), "b": (1, 1, 3)}
    assert {key: (each.n, each.arrays, each.numbers) for key, each in seen.items()} == wanted
    assert all(each.us > 0 for each in seen.values())
    assert lists.taken() == {}


def test_a_default_device_still_reaches_the_functions():
    program = """
import torch
from auditor.capture.instruments.loader_workers import ArrayLists
from auditor.capture.instruments.monkeypatch import Patches
patches = Patches()
ArrayLists(lambda: None).watch(patches.attribute)
torch.set_default_device("meta")
inside = torch.tensor([1.0]).device.type
patches.undo()
print(inside, torch.tensor([1.0]).device.type)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["meta", "meta"]
