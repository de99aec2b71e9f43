"""The probe of float64: what it counts, what it leaves out, and that nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.utils import _python_dispatch

from auditor.capture.probes.numerics.float64_ops import Float64OpsProbe
from tests.capture.drive import Drive, line_of, load

SOURCE = """
import torch
weight = torch.nn.Parameter(torch.ones(4, 4))
optimizer = torch.optim.SGD([weight], lr=0.1)
wide = torch.ones(4, dtype=torch.float64)

def step():
    scaled = weight * wide  # meets
    (scaled @ scaled.T).relu().sum().backward()
    with torch.no_grad():
        weight.double().std()
    optimizer.step()

def broken():
    weight.double()
    raise ValueError("of the program's own")
"""


def test_what_follows_from_one_promotion(tmp_path: Path) -> None:
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, Float64OpsProbe) as drive:
        drive.run("numbers", user.step, 2)
        birth, parameters = drive.rows("doubles")
    # the product by the weight, that of matrices, relu and sum on each of two steps
    assert (birth["how"], birth["n"], birth["products"], birth["steps"]) == ("mixed", 8, 2, 2)
    assert (birth["elements"], birth["largest"], birth["all"]) == (
        2 * 64,
        16,
        2 * 65,
    )  # the gradient of the loss is one number
    assert birth["at_line"] == line_of(user, "meets")
    assert birth["graph"]
    assert (
        parameters["all"] - parameters["elements"] >= 16
    )  # other tests may have left optimizers of theirs


def test_the_watch_is_left_when_a_step_raises(tmp_path: Path) -> None:
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, Float64OpsProbe) as drive:
        with pytest.raises(ValueError, match="own"):
            drive.run("numbers", user.broken, 1)
        assert not _python_dispatch._get_current_dispatch_mode_stack()
        assert [row["how"] for row in drive.rows("doubles") if row["what"] == "birth"] == ["cast"]
