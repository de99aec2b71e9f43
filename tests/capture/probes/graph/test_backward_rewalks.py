from __future__ import annotations

import textwrap
from pathlib import Path

from auditor.rules.graph.probes import backward_rewalks
from auditor.rules.graph.probes.backward_rewalks import BackwardRewalksProbe

from tests.capture.drive import Drive, line_of, load

HEAD = """
import torch
import torch.nn as nn
torch.manual_seed(0)
cell, head = nn.GRUCell(4, 4), nn.Linear(4, 1)
x = torch.randn(2, 4)
"""
STEPS = 2


def record(tmp_path: Path, source: str):
    user = load(tmp_path, HEAD.lstrip("\n") + textwrap.dedent(source))
    with Drive(tmp_path, BackwardRewalksProbe) as drive:
        drive.run("loud", user.step, steps=STEPS)
        assert drive.warnings == []
        return user, drive.rows("rewalked")


CHUNKS = """
def start():
    return torch.zeros(2, 4)
def step():
    state = start()
    for c in range(4):
        state = cell(x, state)  # store
        head(state).mean().backward(retain_graph=c < 3)  # at
"""


def test_each_chunk_walks_those_before_it(tmp_path: Path) -> None:
    user, rows = record(tmp_path, CHUNKS)
    assert len(rows) == 4 * STEPS
    first, second, third, fourth = rows[:4]
    assert first["again"] == 0 < second["again"] < third["again"] < fourth["again"]
    assert second.get("newer", 0) == 0 < third["newer"] < fourth["newer"]
    assert fourth["nodes"] > fourth["again"]
    assert [row.get("kept", False) for row in rows[:4]] == [True, True, True, False]
    assert all(row["summed"] and row["at_line"] == line_of(user, "at") for row in rows)
    assert (fourth["name"], fourth["line"]) == ("state", line_of(user, "store"))
    assert [row["again"] for row in rows[4:]] == [row["again"] for row in rows[:4]]


def test_what_shares_nothing_has_no_row(tmp_path: Path) -> None:
    source = """
    def step():
        for _ in range(3):
            head(cell(x)).mean().backward(retain_graph=True)
    """
    assert record(tmp_path, source)[1] == []


def test_a_part_that_was_there_before_is_not_newer(tmp_path: Path) -> None:
    source = """
    def step():
        h = cell(x)
        a, b = h.mean(), h.std()
        a.backward(retain_graph=True)
        b.backward()
    """
    _, rows = record(tmp_path, source)
    assert [row["newer"] for row in rows] == [0] * 2 * STEPS
    assert [row["again"] > 0 for row in rows[:2]] == [False, True]


def test_gradients_asked_for_by_name_are_not_summed(tmp_path: Path) -> None:
    source = """
    def step():
        h = cell(x)
        torch.autograd.grad(h.mean(), [head.weight], retain_graph=True, allow_unused=True)
        torch.autograd.grad(h.sum(), [cell.weight_ih])
    """
    _, rows = record(tmp_path, source)
    assert not any(row.get("summed", False) for row in rows)


def test_a_walk_that_was_cut_off_says_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("auditor.capture.instruments.autograd_graph.NODE_CAP", 12)
    assert record(tmp_path, CHUNKS)[1] == []


def test_calls_beyond_the_cap_are_left_out(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(backward_rewalks, "CALLS", 2)
    assert len(record(tmp_path, CHUNKS)[1]) == 2 * STEPS
