"""Where a rule writes a patch, and where it only says what to do."""

import textwrap

import pytest
from auditor.rules.opt.gradients import GradientsPileUp
from auditor.rules.opt.rows import UnclearedRow

from auditor import patch
from auditor.evidence.source.files import Source
from auditor.model import Site
from tests.rules.asking import ask, rows

TRAINER = """
    import torch
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    def step(optimizers, scaler):
        loss.backward()
        optimizer.step()
        scaler.step(optimizer)
        optimizers["all"].step()
    def train():
        loss.backward()
        other()
"""


def _edits(steps: str, backward: str, function: str = "step"):
    text = textwrap.dedent(TRAINER).lstrip()
    lines = text.splitlines()
    here = Site("trainer.py", lines.index(f"    {steps}") + 1, "step", steps)
    there = Site(
        "trainer.py",
        max(
            n
            for n, line in enumerate(lines, 1)
            if line.strip() == backward and (n < 5) == (function == "step")
        ),
        function,
        backward,
    )
    rule = GradientsPileUp()
    (finding,) = ask(
        rule,
        rows(
            UnclearedRow(at=0, backward_at=1, optimizer="SGD", steps=10, piled=9),
            sites=(here, there),
        ),
        Source({"trainer.py": text}),
    )
    return text, rule.remedy(finding).edits


def test_gradients_are_cleared_before_the_backward() -> None:
    text, edits = _edits("optimizer.step()", "loss.backward()")
    (file,) = patch.plan(edits, lambda path: text.encode()).files
    assert (
        "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()"
        in file.after.decode()
    )
    assert not edits[0].safe


@pytest.mark.parametrize(
    ("steps", "function"),
    [
        ("scaler.step(optimizer)", "step"),
        ('optimizers["all"].step()', "step"),
        ("optimizer.step()", "train"),
    ],
)
def test_where_the_optimizer_has_no_name_there_is_only_advice(steps: str, function: str) -> None:
    assert _edits(steps, "loss.backward()", function)[1] == ()
