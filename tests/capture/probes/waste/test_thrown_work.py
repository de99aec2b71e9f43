"""The probe of work that is thrown away, whatever the target is."""

import argparse
import functools
import types

import pytest
import torch

from auditor.capture.probes.waste.thrown_work import ThrownWorkProbe
from tests.capture.drive import Drive, load

SOURCE = """
import torch
net = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

def step():
    optimizer.zero_grad()
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()

def steps():
    while True:
        yield step()
"""


@pytest.mark.parametrize("wrapped", [False, True])
def test_variables_of_a_generator_are_found(tmp_path, wrapped):
    user = load(tmp_path, SOURCE)
    made = user.steps()
    with Drive(tmp_path, ThrownWorkProbe) as drive:
        with drive.running("numbers", functools.partial(next, made) if wrapped else made):
            drive.step(lambda: next(made))
        assert [row["steps"] for row in drive.rows("thrown") if row["what"] == "all"] == [1]


def test_numbers_of_the_host_are_not_read_one_by_one(tmp_path, monkeypatch):
    """A byte each, a batch of pictures took minutes."""
    user = load(
        tmp_path,
        SOURCE + "\ndef made():\n    return torch.tensor([[1.0, 2.0, 3.0, 4.0]] * 2)\n"
        "def step():\n    optimizer.zero_grad()\n    net(made()).sum().backward()\n"
        "    optimizer.step()\n",
    )

    def one_by_one(storage):
        raise AssertionError("each byte is an operator of torch")

    monkeypatch.setattr(torch.UntypedStorage, "tolist", one_by_one)
    with Drive(tmp_path, ThrownWorkProbe) as drive:
        with drive.running("numbers", user.step):
            drive.step(user.step)
            drive.step(user.step)
        assert drive.rows("lapses") == []
        assert [row["steps"] for row in drive.rows("thrown") if row["what"] == "all"] == [2]


@pytest.mark.parametrize("names", [{}, {"args": argparse.Namespace(lr=0.1)}, {"args": []}])
def test_a_script_may_have_any_names(tmp_path, names):
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, ThrownWorkProbe) as drive:
        with drive.running("numbers", types.SimpleNamespace(**names)):
            drive.step(user.step)
            drive.step(user.step)
        (row,) = [row for row in drive.rows("thrown") if row["what"] == "all"]
        assert drive.rows("lapses") == []
    assert (row["steps"], row["trained"]) == (2, True)
