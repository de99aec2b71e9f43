"""The probe of work that is thrown away, whatever the target is."""

from __future__ import annotations

import argparse
import functools
import types

import pytest
import torch

from auditor.capture.probes.waste.thrown_work import ThrownWorkProbe
from auditor.recordings.schema.waste import ThrownRow
from tests.capture.drive import Drive, load
from tests.inprocess import record

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


ALTERNATING = """
import torch
g, d = torch.nn.Linear(8, 64), torch.nn.Linear(64, 1)
g_opt = torch.optim.SGD(g.parameters(), lr=0.1)
d_opt = torch.optim.SGD(d.parameters(), lr=0.1)
done = 0

def step():
    global done
    fake = g(torch.ones(32, 8))
    d_opt.zero_grad()
    d(fake.detach()).mean().backward()
    d_opt.step()
    done += 1
    if done % {period} == 0:
        g_opt.zero_grad()
        d(fake).mean().backward()
        g_opt.step()
"""


@pytest.mark.parametrize(("period", "watched"), [(1, 3), (2, 5), (3, 7), (5, 11)])
def test_each_kind_of_steps_that_alternate_is_seen_twice(tmp_path, period, watched):
    user = load(tmp_path, ALTERNATING.format(period=period))
    folder = tmp_path / "recording"
    made = record(folder, lambda: user.step, ("thrown",), roots=[tmp_path], steps=24, device="cpu")
    rows = made.rows(ThrownRow)
    found = [row for row in rows if row.what == "gradient"]
    assert next(row.steps for row in rows if row.what == "all") == watched
    assert [row.steps for row in found] == [2]
    assert [row.operators * period for row in found] == pytest.approx([4.0])
