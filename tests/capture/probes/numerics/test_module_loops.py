"""Modules that are called with pieces of a tensor: which series of calls are written."""

import pytest
from auditor.rules.kern.probes.module_loops import ModuleLoopsProbe

from auditor.recordings.folder import Recording
from tests.capture.drive import Drive, line_of, load

SOURCE = """
import torch
from torch import nn
net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

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
def modules(): outer(torch.ones(N, 4))
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


@pytest.mark.parametrize(("turns", "found"), [(7, 0), (8, 1)])
def test_calls_with_pieces_are_counted(tmp_path, turns, found):
    user, rows = rows_of(tmp_path, "plain", turns)
    outside = [row for row in rows if row["lines"]]
    assert len(outside) == found
    for row in outside:
        assert (row["module"], row["n"], row["elements"]) == ("Sequential", turns, 4)
        assert row["lines"][-1] == line_of(user, "calls") and not row["recurrent"]
