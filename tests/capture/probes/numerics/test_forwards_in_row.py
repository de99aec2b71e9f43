"""Modules that one function calls several times: which series of calls are written."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from auditor.rules.kern.probes.forwards_in_row import ForwardsInRowProbe
from torch.nn.modules import module as module_hooks

from tests.capture.drive import Drive, line_of, load

SOURCE = """
import torch
from torch import nn

net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
norm = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
frozen = nn.Linear(4, 4).requires_grad_(False)
outer = nn.Sequential(net)

def thrice(module, *shape):
    x, y, z = (torch.ones(shape) for _ in range(3))
    a = module(x)                                   # first
    b = module(y)
    c = module(z)                                   # last
    return a, b, c

def apart(): thrice(net, 2, 4)
def twice_each(): thrice(net, 2, 4); thrice(net, 3, 4)
def nested(): thrice(outer, 2, 4)
def together():
    x, y, z = torch.ones(3, 2, 4)
    return net(x), net(y), net(z)                   # together
def statistics(): thrice(norm, 2, 4)
def untrained(): thrice(frozen, 2, 4)
def without_graph():
    with torch.no_grad(): thrice(net, 2, 4)
def one_sample(): thrice(net, 4)
def same():
    x = torch.ones(2, 4)
    return net(x), net(x), net(x)
def walked():
    x, y, z = torch.ones(3, 2, 4)
    net(x).sum().backward()
    net(y).sum().backward()
    net(z).sum().backward()
def looped():
    for x in torch.ones(3, 2, 4): net(x)
def shapes():
    x, y, z = torch.ones(2, 4), torch.ones(2, 4), torch.ones(2, 3, 4)
    return net(x), net(y), net(z)
def other_lines_too():
    x, y, z = torch.ones(3, 2, 4)
    for _ in range(2): net(torch.ones(2, 4))
    return net(x), net(y), net(z)
"""


def rows_of(tmp_path, name):
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, ForwardsInRowProbe) as drive:
        drive.run("numbers", getattr(user, name), 1)
        rows, sites = drive.rows("forwards"), drive.rows("sites")
    for row in rows:
        row["lines"] = [sites[number]["line"] for number in row["lines"]]
        assert 0 < row["us"] < row["step_us"]
    return user, rows


@pytest.mark.parametrize(
    "name",
    [
        "statistics",
        "untrained",
        "without_graph",
        "one_sample",
        "same",
        "walked",
        "looped",
        "shapes",
        "other_lines_too",
    ],
)
def test_what_no_one_call_does(tmp_path, name):
    assert rows_of(tmp_path, name)[1] == []


@pytest.mark.parametrize(("name", "n"), [("apart", 3), ("nested", 3), ("twice_each", 6)])
def test_calls_of_a_function_are_counted(tmp_path, name, n):
    user, (row,) = rows_of(tmp_path, name)
    first, last = line_of(user, "first"), line_of(user, "last")
    assert (row["lines"], row["n"], row["module"]) == ([*range(first, last + 1)], n, "Sequential")
    assert row["elements"] == (12 if n == 6 else 8)


def test_calls_of_one_line_are_told_apart(tmp_path):
    user, (row,) = rows_of(tmp_path, "together")
    assert row["lines"] == [line_of(user, "together")] * 3


def test_nothing_of_the_users_is_kept_and_all_is_put_back(tmp_path):
    user, kept = load(tmp_path, SOURCE), []
    before = len(module_hooks._global_forward_hooks), len(module_hooks._global_forward_pre_hooks)

    def step():
        x = torch.ones(2, 4)
        kept.append(weakref.ref(x))
        user.net(x)
        del x
        gc.collect()
        assert kept[-1]() is None

    with Drive(tmp_path, ForwardsInRowProbe) as drive:
        drive.run("numbers", step, 2)
    assert len(kept) == 2
    after = len(module_hooks._global_forward_hooks), len(module_hooks._global_forward_pre_hooks)
    assert after == before
