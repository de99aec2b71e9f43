"""What the patches of TRAIN001, TRAIN002 and TRAIN004 make of losses, and where there is none."""

import pytest
from auditor.rules.train.losses import ActivationAppliedTwice, PaddingTrained, SilentBroadcast
from auditor.rules.train.rows import RepairRow

from auditor.evidence.source.files import Source
from auditor.model import Site
from auditor.patch import apply_edits
from tests.rules.asking import ask, rows

HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import cross_entropy, softmax

criterion = nn.CrossEntropyLoss()
kept = torch.softmax, softmax

def loss_of(self, out, y):
    other = y.float()
"""


def patched(rule, loss, **facts):
    """The lines of a loss after the patch; None where there is only advice."""
    text = f"{HEAD}    loss = {loss}\n    return loss\n"
    numbers = {"angle": 40.0, "ratio": 1.0, "over": "parameters", "loss": 1.0, "repaired": 2.0}
    lines = text.splitlines()
    number = next(n for n, line in enumerate(lines, 1) if line.startswith("    loss = "))
    site = Site("t.py", number, "loss_of", lines[number - 1].strip())
    values = facts.pop("values", (None,))
    given = [
        RepairRow(at=0, step=step, **numbers, **facts, value=value)
        for step, value in enumerate(values)
    ]
    source = () if rule is PaddingTrained else (Source({"t.py": text}),)
    (finding,) = ask(rule(), rows(*given, sites=(site,)), *source)
    edits = rule().remedy(finding).edits
    if not edits:
        return None
    assert not any(edit.safe for edit in edits)
    after = apply_edits(text.encode(), list(edits)).decode()
    compile(after, "t.py", "exec")
    assert after.startswith(HEAD) and after.endswith("    return loss\n")
    return after[len(HEAD) :].removesuffix("    return loss\n").strip().removeprefix("loss = ")


COLUMN = {"defect": "broadcast", "given": [16, 1], "other": [16], "second": True}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("F.mse_loss(out, y)", "F.mse_loss(out, y.unsqueeze(-1))"),
        ("F.mse_loss(out, y + 1)", "F.mse_loss(out, (y + 1).unsqueeze(-1))"),
        ("F.mse_loss(out, y.float())", "F.mse_loss(out, y.float().unsqueeze(-1))"),
        (
            "F.mse_loss(out, y, size_average=None)",
            "F.mse_loss(out, y.unsqueeze(-1), size_average=None)",
        ),
        ("F.mse_loss(\n        out,\n        y,\n    )", None),
        ("F.mse_loss(out, 1e-03 * y)", None),
        ("2 * F.mse_loss(out, y).mean()", "2 * F.mse_loss(out, y.unsqueeze(-1)).mean()"),
        ('F.mse_loss(out, y, reduction="sum")', None),
        ("F.mse_loss(input=out, target=y)", None),
        ("F.mse_loss(*y)", None),
        ("F.mse_loss(out, y) + F.mse_loss(other, y)", None),
        ("nn.MSELoss()(out, y)", None),
    ],
)
def test_a_target_is_given_the_shape_of_the_output(before, after):
    assert patched(SilentBroadcast, before, function="mse_loss", **COLUMN) == after


@pytest.mark.parametrize(
    ("facts", "after"),
    [
        ({"given": [16], "other": [16, 1]}, "F.mse_loss(out, y.squeeze(-1))"),
        ({"given": [16, 1, 4], "other": [16, 4]}, None),
        ({"given": [16, 1, 1], "other": [16]}, None),
        ({"second": False}, None),
    ],
)
def test_only_a_last_column_is_added_or_taken_away(facts, after):
    given = {"function": "mse_loss", **COLUMN, **facts}
    assert patched(SilentBroadcast, "F.mse_loss(out, y)", **given) == after


TWICE = {"defect": "activation", "function": "cross_entropy", "activation": "softmax"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("F.cross_entropy(torch.softmax(out, 1), y)", "F.cross_entropy(out, y)"),
        ("F.cross_entropy(F.softmax(input=out, dim=1), y)", None),
        ("F.cross_entropy(out.softmax(-1), y)", "F.cross_entropy(out, y)"),
        ("F.cross_entropy(out.softmax(dim=-1), y)", "F.cross_entropy(out, y)"),
        ("F.cross_entropy(softmax(out, 1), y)", "F.cross_entropy(out, y)"),
        ("cross_entropy(softmax(out, 1), y)", "cross_entropy(out, y)"),
        (
            "F.cross_entropy(F.softmax(out, 1), y, label_smoothing=0.1)",
            "F.cross_entropy(out, y, label_smoothing=0.1)",
        ),
        ("F.cross_entropy(\n        F.softmax(out, dim=-1),\n        y,\n    )", None),
        ("F.cross_entropy(F.softmax(out.view(4, 5), 1), y)", "F.cross_entropy(out.view(4, 5), y)"),
        ("F.cross_entropy(input=F.softmax(out, 1), target=y)", None),
        ("F.cross_entropy(self.softmax(out), y)", None),
        ("F.cross_entropy(self.softmax(out, 1), y)", None),
        ("F.cross_entropy(nn.Softmax(1)(out), y)", None),
        ("F.cross_entropy(other, y)", None),
        ("criterion(F.softmax(out, 1), y)", None),
    ],
)
def test_an_activation_is_taken_away(before, after):
    assert patched(ActivationAppliedTwice, before, **TWICE) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("F.nll_loss(F.softmax(out, dim=1), y)", "F.nll_loss(F.log_softmax(out, dim=1), y)"),
        (
            "F.nll_loss(\n        torch.softmax(out, 1), y)",
            None,  # its line is another one
        ),
        ("F.nll_loss(F.softmax(input=out, dim=1), y)", None),
        ("F.nll_loss(out.softmax(1), y)", None),
        ("F.nll_loss(self.softmax(out), y)", None),
    ],
)
def test_a_logarithm_is_added(before, after):
    facts = {"defect": "activation", "function": "nll_loss", "activation": "softmax", "made_at": 0}
    assert patched(ActivationAppliedTwice, before, **facts) == after


PADDED = {"defect": "padding", "function": "cross_entropy", "padded": 3, "targets": 12, "by": "m"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("F.cross_entropy(out, y)", "F.cross_entropy(out, y, ignore_index=8)"),
        ("cross_entropy(out, y)", "cross_entropy(out, y, ignore_index=8)"),
        (
            "F.cross_entropy(input=out, target=y)",
            "F.cross_entropy(input=out, target=y, ignore_index=8)",
        ),
        (
            "F.cross_entropy(\n        out,\n        y,\n    )",
            "F.cross_entropy(\n        out,\n        y,\n        ignore_index=8,\n    )",
        ),
        ("criterion(out, y)", None),
        ("nn.CrossEntropyLoss()(out, y)", None),
    ],
)
def test_padding_is_named(before, after):
    assert patched(PaddingTrained, before, values=(8, 8), **PADDED) == after


@pytest.mark.parametrize("values", [(8, 0), (8, None), (None, 8), (None,)])
def test_padding_that_is_no_one_value_is_not(values):
    assert patched(PaddingTrained, "F.cross_entropy(out, y)", values=values, **PADDED) is None
