"""Differences of all pairs: which are written, and that nothing of the watch stays."""

import pytest
from auditor.rules.mem.probes.peak_experiments import PairwiseDifferencesProbe

from tests.capture.drive import watched

SOURCE = """
import torch
x = torch.ones(ROWS, SIZE, requires_grad=True)
y = torch.ones(ROWS, SIZE)

def squares(): (x[:, None] - y).pow(2).sum(-1).sum().backward()  # squares
def product():
    gap = x[:, None] - y
    (gap * gap).mean(2)
def norm(): (x.detach()[:, None] - y).norm(dim=-1)
def absolute(): (x[:, None] - y).abs().sum(-1)
def maximum(): torch.linalg.vector_norm(x[:, None] - y, float("inf"), dim=-1)
def cubes(): (x[:, None] - y).pow(3).sum(-1)
def plain(): (x[:, None] - y).sum(-1)
def everything(): (x[:, None] - y).pow(2).sum()
def in_place():
    with torch.no_grad(): (x[:, None] - y).pow_(2).sum(-1)
def kept():
    gap = x[:, None] - y
    return gap.pow(2).sum(-1), gap.mean()
def squares_kept():
    far = (x[:, None] - y).pow(2)
    return far.sum(-1), far.mean()
def number(): (x[:, None].expand(ROWS, ROWS, SIZE) - 1).pow(2).sum(-1)
def broken():
    x[:, None] - y
    raise ValueError("of the program's own")
"""


def rows_of(tmp_path, name, rows=8, size=8):
    user, drive = watched(
        tmp_path,
        SOURCE.replace("ROWS", str(rows)).replace("SIZE", str(size)),
        PairwiseDifferencesProbe,
        run="numbers",
        step=name,
        steps=1,
    )
    return user, drive.rows("differences")


@pytest.mark.parametrize(
    "name",
    ["maximum", "cubes", "plain", "everything", "in_place", "kept", "squares_kept", "number"],
)
def test_what_is_needed_or_no_distance(tmp_path, name):
    assert rows_of(tmp_path, name)[1] == []


@pytest.mark.parametrize(("rows", "size", "found"), [(7, 8, 0), (8, 7, 0), (8, 8, 1)])
def test_few_rows_and_short_ones_are_left_out(tmp_path, rows, size, found):
    assert len(rows_of(tmp_path, "squares", rows, size)[1]) == found
