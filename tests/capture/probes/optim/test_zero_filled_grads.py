"""The probe of gradients that the program fills with zeros itself: what counts, and the method is
put back.
"""

from __future__ import annotations

from pathlib import Path

import torch

from auditor.capture.probes.optim.zero_grad import ZeroFilledGradsProbe
from tests.capture.drive import Drive, line_of, load

SOURCE = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    for p in model.parameters():
        if p.grad is not None:
            p.grad.zero_()        # counts
    model(torch.ones(3, 4)).mean().backward()
    model.bias.grad.zero_()       # held still
    optimizer.step()
"""


def test_zeros_that_the_next_backward_adds_to(tmp_path: Path) -> None:
    before = torch.Tensor.zero_
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, ZeroFilledGradsProbe) as drive:
        drive.run("loud", user.step, steps=3)
        rows = drive.rows("optimizer")
    assert [(row["step"], row["at_line"], row["n"], row["owner"]) for row in rows] == [
        (1, line_of(user, "counts"), 2, "Tensor"),
        (2, line_of(user, "counts"), 2, "Tensor"),
    ]
    assert torch.Tensor.zero_ is before and "zero_" not in vars(torch.Tensor)
