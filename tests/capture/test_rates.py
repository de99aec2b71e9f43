"""The probe of rates that a loaded state brings back: rows, and the method is put back."""

from __future__ import annotations

from pathlib import Path

import torch

from auditor.capture.rates import RatesProbe
from tests.capture.drive import Drive, line_of, load

SOURCE = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
other = torch.optim.SGD(model.parameters(), lr=0.5)

def resume():
    optimizer.load_state_dict(other.state_dict())  # loads
    optimizer.param_groups[0]["lr"] = 0.2

def step():
    optimizer.step()
    other.load_state_dict(optimizer.state_dict())
"""


def test_rates_before_and_after_the_load_and_at_the_first_step(tmp_path: Path) -> None:
    before = torch.optim.Optimizer.load_state_dict
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, RatesProbe) as drive:
        user.resume()
        drive.run("loud", user.step, steps=2)
        (row,) = drive.rows("rates")
    assert (row["at_line"], row["optimizer"], row["default"]) == (line_of(user, "loads"), "SGD", 1e-3)
    assert (row["before"], row["after"], row["ran"]) == ([{"lr": 0.1}], [{"lr": 0.5}], [{"lr": 0.2}])
    assert torch.optim.Optimizer.load_state_dict is before
