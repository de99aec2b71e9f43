"""Modules that are called with pieces of a tensor: which series of calls are written."""

from __future__ import annotations

import pytest
from auditor.rules.kern.probes import module_loops
from auditor.rules.kern.probes.module_loops import ModuleLoopsProbe
from torch.nn.modules import module as module_hooks

from auditor.recordings.folder import Recording
from tests.capture.drive import Drive, line_of, load

SOURCE = """
import torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
cell = nn.LSTMCell(4, 4)

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, x):
        return sum(self.net(row) for row in x)  # inner

outer = Outer()

def rows(x, more=()):
    for row in x:
        net(row, *more)  # calls

def plain(): rows(torch.ones(N, 4))
def same_row():
    x = torch.ones(N, 4)
    for _ in range(N): net(x[0])
def two_bases(): rows((*torch.ones(N, 4), *torch.ones(N, 4)))
def fresh(): rows([torch.ones(4) for _ in range(N)])
def written():
    x = torch.ones(N, 4)
    for row in x:
        net(row)
        x[0] = 1
def overlapping():
    x = torch.ones(40)
    for n in range(N): net(x[n:n + 4])
def walked():
    for row in torch.ones(N, 4): net(row).sum().backward()
def modules(): outer(torch.ones(N, 4))
def recurrent():
    state = None
    for row in torch.ones(N, 2, 4): state = cell(row, state)  # turns
def masked():
    state = torch.zeros(2, 4), torch.zeros(2, 4)
    for row in torch.ones(N, 2, 4): state = tuple(each * 1 for each in cell(row, state))
def crossed():
    state = torch.zeros(2, 4), torch.zeros(2, 4)
    for row in torch.ones(N, 2, 4): state = cell(row, state)[::-1]
"""


def rows_of(tmp_path, name, turns=8):
    user = load(tmp_path, SOURCE)
    user.N = turns
    with Drive(tmp_path, ModuleLoopsProbe) as drive:
        drive.run("numbers", getattr(user, name), 1)
        rows = drive.rows("turns")
    recording = Recording(drive.folder)
    for row in rows:
        row["lines"] = [recording.site_row(number).line for number in row["lines"]]
        assert 0 < row["us"] < row["step_us"]
    return user, rows


@pytest.mark.parametrize("name", ["same_row", "fresh", "written", "walked", "masked", "crossed"])
def test_what_no_one_call_does(tmp_path, name):
    assert rows_of(tmp_path, name)[1] == []


@pytest.mark.parametrize(("turns", "found"), [(7, 0), (8, 1)])
def test_calls_with_pieces_are_counted(tmp_path, turns, found):
    user, rows = rows_of(tmp_path, "plain", turns)
    outside = [row for row in rows if row["lines"]]
    assert len(outside) == found
    for row in outside:
        assert (row["module"], row["n"], row["elements"]) == ("Sequential", turns, 4)
        assert row["lines"][-1] == line_of(user, "calls") and not row["recurrent"]


def test_lines_are_those_inside_the_module_that_calls(tmp_path):
    user, rows = rows_of(tmp_path, "modules")
    (row,) = rows
    assert set(row["lines"]) == {line_of(user, "inner")}


def test_a_cell_that_is_handed_its_own_state(tmp_path):
    user, (row,) = rows_of(tmp_path, "recurrent")
    assert (row["module"], row["recurrent"], row["n"]) == ("LSTMCell", True, 8)
    assert row["lines"][-1] == line_of(user, "turns")


def test_pieces_of_another_shape_or_tensor_break_a_series(tmp_path):
    assert rows_of(tmp_path, "two_bases")[1] == []
    assert [row["n"] for row in rows_of(tmp_path, "overlapping")[1]] == [8]


def test_only_so_many_series_are_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(module_loops, "SERIES", 0)
    assert rows_of(tmp_path, "plain")[1] == []


def test_hooks_are_taken_away(tmp_path):
    before = len(module_hooks._global_forward_pre_hooks), len(module_hooks._global_forward_hooks)
    rows_of(tmp_path, "plain")
    after = len(module_hooks._global_forward_pre_hooks), len(module_hooks._global_forward_hooks)
    assert before == after
