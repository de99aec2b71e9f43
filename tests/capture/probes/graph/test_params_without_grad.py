"""The probe of what optimizers are fed: rows at the end of the pass, torch's hooks put back."""

import pytest

from auditor.capture.probes.graph.params_without_grad import ParamsWithoutGradProbe
from tests.capture.drive import Drive, line_of, load, watched

SOURCE = """import torch
used, cut = torch.nn.Linear(2, 1), torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW([{"params": used.parameters()}, {"params": cut.parameters(), "lr": 0.0}])

def step():
    optimizer.zero_grad()
    used(cut(torch.ones(1, 2)).detach()).sum().backward()
    optimizer.step()  # steps
"""


def test_a_broken_group_does_no_harm(tmp_path):
    user = load(tmp_path, SOURCE)
    user.optimizer.param_groups[1]["lr"] = "a word"
    user.optimizer.param_groups[1]["params"] = []
    with Drive(tmp_path, ParamsWithoutGradProbe) as drive:
        drive.run("loud", user.step)
        assert drive.rows("lapses") == []


@pytest.mark.parametrize(
    ("line", "cut"),
    [
        ("x = cut(ones).detach()  # here", "detach"),
        ("x = torch.Tensor.detach(cut(ones).tanh())  # here", "detach"),
        ("with torch.no_grad():  # here\n        x = cut(ones)", "no_grad"),
        ("with torch.no_grad():  # here\n        with torch.no_grad(): x = cut(ones)", "no_grad"),
        (
            "with torch.inference_mode():  # here\n        x = cut(ones)\n    x = x.clone()",
            "no_grad",
        ),
        ("x = ones; cut(ones)", ""),  # runs, and nothing reads it
        ("x = ones\n    with torch.no_grad():\n        cut(ones)\n    cut(ones)", ""),
        ("x = ones.detach()", ""),
        ("x = ones\n    with torch.no_grad(): pass", ""),
        (  # gradients are off in a function's forward, and a no_grad() before it has ended
            (
                "class Inside(torch.autograd.Function):\n"
                "        def forward(ctx, x): return cut(x)\n"
                "        def backward(ctx, grad): return grad\n"
                "    with torch.no_grad(): pass\n"
                "    x = Inside.apply(ones.requires_grad_())"
            ),
            "",
        ),
    ],
)
def test_what_cuts_parameters_off_is_named(tmp_path, line, cut):
    source = SOURCE.replace(
        "used(cut(torch.ones(1, 2)).detach()).sum()",
        f"ones = torch.ones(1, 2)\n    {line}\n    loss = used(x).sum()\n    loss.detach()\n    loss",
    )
    user, drive = watched(tmp_path, source, ParamsWithoutGradProbe, steps=5)
    (row,) = drive.rows("fed")
    assert drive.rows("lapses") == []
    assert (row["n"], row["cut"]) == (2, cut)
    assert row["cut_at_line" if cut else "cut_at"] == (line_of(user, "here") if cut else None)
