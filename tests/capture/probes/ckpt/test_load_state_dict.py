"""What the program loaded before its first step."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tests.inprocess import record

HERE = Path(__file__)


def rows(tmp_path, make):
    return record(tmp_path / "recording", make, ("loads", "steps"), roots=[HERE], steps=2).rows(
        "loads"
    )


def test_a_sketch_without_values_leaves_no_row_and_is_no_failure(tmp_path):
    """As ``from_pretrained`` of Transformers makes one."""

    def make():
        with torch.device("meta"):
            sketch = nn.Linear(4, 4)
        sketch.load_state_dict(nn.Linear(4, 4).state_dict())
        return lambda: None

    recording = record(tmp_path / "recording", make, ("loads", "steps"), roots=[HERE], steps=2)
    assert recording.rows("loads") == [] and not recording.manifest["warnings"]


def test_rates_before_and_after_and_at_the_first_step(tmp_path):
    def make():
        parameter = nn.Parameter(torch.ones(1))
        old = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5)
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        optimizer.load_state_dict(old.state_dict())
        optimizer.param_groups[0]["lr"] = 0.2

        def step():
            parameter.square().sum().backward()
            optimizer.step()

        return step

    (row,) = rows(tmp_path, make)
    facts = row["what"], row["owner"], row["bad"], row["default"]
    assert facts == ("optimizer", "SGD", 0, 1e-3)
    assert row["groups"] == [{"before": {"lr": 0.1}, "after": {"lr": 0.5}, "first": {"lr": 0.2}}]


def test_an_optimizer_without_a_hash_goes_on_working(tmp_path):
    class Odd(torch.optim.SGD):
        __hash__ = None

        def __eq__(self, other):
            return self is other

    def make():
        assert Odd([nn.Parameter(torch.ones(1))], lr=0.1).param_groups
        return lambda: None

    assert rows(tmp_path, make) == []


def test_a_state_that_does_not_fit_raises_as_ever(tmp_path):
    def make():
        with pytest.raises(RuntimeError, match="size mismatch"):
            nn.Linear(2, 2).load_state_dict(nn.Linear(3, 3).state_dict())
        return lambda: None

    assert rows(tmp_path, make) == []


def test_groups_that_cannot_be_read_do_not_stop_the_load(tmp_path):
    class Slim:
        """A group that has what torch's own load asks for, and no ``get``."""

        def __init__(self, group):
            self.group = group

        def __getitem__(self, key):
            return self.group[key]

        def __iter__(self):
            return iter(self.group)

    loaded = []

    def make():
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
        state = optimizer.state_dict()
        optimizer.param_groups = [Slim(group) for group in optimizer.param_groups]
        optimizer.load_state_dict(state)
        loaded.append(optimizer.param_groups[0]["lr"])
        return lambda: None

    rows(tmp_path, make)
    assert loaded == [0.1]
