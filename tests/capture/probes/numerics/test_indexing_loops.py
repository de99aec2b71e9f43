"""The probe of loops over pieces: what it counts, and that nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from auditor.rules.kern.probes.indexing_loops import IndexingLoopsProbe
from torch.utils import _python_dispatch

from tests.capture.drive import Drive, line_of, load

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


def test_turns_and_operators_of_a_loop(tmp_path: Path) -> None:
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, IndexingLoopsProbe) as drive:
        drive.run("numbers", user.step, 2)
        rows = drive.rows("piecewise")
    # 12 times exp and a product; relu before, stack, sum and the first gradient after it
    assert [
        (row["op"], row["n"], row["operators"], row["all"], row["elements"]) for row in rows
    ] == [("exp", 12, 23, 28, 4)] * 2
    assert rows[0]["at_line"] == line_of(user, "piece")


def test_the_watch_is_left_when_a_step_raises(tmp_path: Path) -> None:
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, IndexingLoopsProbe) as drive:
        with pytest.raises(ValueError, match="own"):
            drive.run("numbers", user.broken, 1)
        assert not _python_dispatch._get_current_dispatch_mode_stack()
