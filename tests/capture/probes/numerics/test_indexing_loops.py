"""The probe of loops over pieces: what it counts, and that nothing of it stays."""

import torch
from auditor.rules.kern.probes import indexing_loops
from auditor.rules.kern.probes.indexing_loops import IndexingLoopsProbe, ParametersNow

from tests.capture.drive import line_of, watched

SOURCE = """
import torch
weight = torch.nn.Parameter(torch.ones(12, 4))

def step():
    out = weight.relu()
    rows = []
    for row in out:
        rows.append(row.exp() * 2)  # piece
    torch.stack(rows).sum().backward()

def broken():
    for row in weight:
        row.exp()
    raise ValueError("of the program's own")
"""


def test_turns_and_operators_of_a_loop(tmp_path):
    user, drive = watched(tmp_path, SOURCE, IndexingLoopsProbe, run="numbers", steps=2)
    rows = drive.rows("piecewise")
    # 12 times exp and a product; relu before, stack, sum and the first gradient after it
    assert [
        (row["op"], row["n"], row["operators"], row["all"], row["elements"]) for row in rows
    ] == [("exp", 12, 23, 28, 4)] * 2
    assert rows[0]["at_line"] == line_of(user, "piece")


def test_without_an_optimizer_what_is_made_anew_in_each_step_is_found(monkeypatch):
    monkeypatch.setattr(indexing_loops, "live_optimizers", list)  # those of other tests
    now = ParametersNow()
    now.look()
    fresh = torch.ones(3, requires_grad=True)
    now.look()
    assert now.given_whole([fresh]) is not None
