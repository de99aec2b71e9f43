"""CUDA graphs of compiled code: Inductor and Triton compile for a GPU here, and say why they leave
graphs out.
"""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.usefixtures("inside")

PROGRAM = """
import torch

model = torch.nn.Linear(16, 16).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = torch.zeros(8, 16, device="cuda")

@torch.compile(mode="reduce-overhead")
def loss_of(x, seen):
    IN_PLACE
    return (model(x) + seen).square().mean()

def step():
    optimizer.zero_grad()
    loss_of(torch.randn(8, 16, device="cuda"), seen).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("line", "found"), [("seen.add_(x)", True), ("seen = seen + x", False)])
def test_an_input_that_is_written_to_is_told_at_the_function(tmp_path, audit, line, found):
    (tmp_path / "trains.py").write_text(PROGRAM.replace("IN_PLACE", line))
    out = tmp_path / "out"
    words = ("run", "trains:step", "--steps", "12", "--device", "cuda", "--select", "COMP")
    done = audit(*words, "--out", str(out), cwd=tmp_path)
    report = json.loads((out / "report.json").read_text())
    assert {each["code"]: each["status"] for each in report["verdicts"]}["COMP007"] == (
        "found" if found else "clean"
    ), done.stderr
    told = [each for each in report["findings"] if each["code"] == "COMP007"]
    assert [each["site"]["line"] for each in told] == [8] * found
