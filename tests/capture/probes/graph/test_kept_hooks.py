"""Hooks that stay, also where another probe watches the functions that register them."""

from __future__ import annotations

from auditor.rules.comp.probes.late_hooks import LateHooksProbe
from auditor.rules.mem.probes import kept_hooks
from auditor.rules.mem.probes.kept_hooks import KeptHooksProbe
from torch.utils.hooks import RemovableHandle

from tests.capture.drive import Drive, line_of, load

PROGRAM = """
import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

def hook(*_):
    return None

def step():
    for module in (net[0], net[1], net[0]):
        module.register_forward_hook(hook)  # both
    net[1].register_forward_pre_hook(hook).remove()
    net(torch.ones(2, 4)).sum().backward()
"""


def recorded(tmp_path, *probes):
    before = vars(RemovableHandle)["__init__"]
    with Drive(tmp_path, *probes) as drive:
        program = load(tmp_path, PROGRAM)
        drive.run("loud", program.step, 3)
        rows = drive.rows("kept_hooks")
    assert vars(RemovableHandle)["__init__"] is before
    assert drive.warnings == []
    line = line_of(program, "both")
    return [
        (row["at_line"] - line, row["way"], row["owner"], row["n"], row["added"], row["steps"])
        for row in rows
    ]


def test_the_owner_that_holds_most_is_told(tmp_path):
    expected = [(0, "register_forward_hook", "Linear", 6, 3, 3)]
    assert recorded(tmp_path, KeptHooksProbe) == expected
    assert recorded(tmp_path, LateHooksProbe, KeptHooksProbe) == expected


def test_no_more_are_followed_than_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_hooks, "MOST", 4)
    assert recorded(tmp_path, KeptHooksProbe) == [(0, "register_forward_hook", "Linear", 3, 2, 3)]
