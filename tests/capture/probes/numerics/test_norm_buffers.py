"""The probe of batch norm's running statistics."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.nn.modules.batchnorm import _BatchNorm

from auditor.capture.probes.numerics.norm_buffers import NormBuffersProbe
from tests.capture.drive import Drive, line_of, load

SOURCE = """import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
value = 1.0
steps = 0

def step():
    global steps
    steps += 1
    x = torch.rand(4, 2)
    if steps == 2:
        x[0] = value
    model(x)                       # ran
"""


@pytest.mark.parametrize(
    ("value", "told"), [("nan", "nan"), ("inf", "inf"), ("2.0", None)], ids=str
)
def test_the_first_buffer_that_is_not_finite_is_told_once(tmp_path: Path, value, told) -> None:
    user = load(tmp_path, SOURCE.replace("value = 1.0", f"value = float({value!r})"))
    forward = _BatchNorm.forward
    with Drive(tmp_path, NormBuffersProbe) as drive:
        drive.run("loud", user.step, steps=4)
        rows = drive.rows("buffers")
    assert _BatchNorm.forward is forward
    assert [(row["step"], row["buffer"], row["owner"]) for row in rows] == (
        [] if told is None else [(1, "running_mean", "BatchNorm1d")]
    )
    assert [row["at_line"] for row in rows] == [line_of(user, "ran")] * len(rows)
    assert {row["value"] for row in rows} <= {"nan", told}


def test_a_module_in_eval_mode_changes_nothing(tmp_path: Path) -> None:
    user = load(tmp_path, SOURCE.replace("value = 1.0", "value = float('nan')"))
    user.model.eval()
    with Drive(tmp_path, NormBuffersProbe) as drive:
        drive.run("loud", user.step, steps=3)
        assert drive.rows("buffers") == []
