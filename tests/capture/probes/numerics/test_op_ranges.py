"""The probe of delicate operators: dtypes that ran, what came before, the loss's part."""

from auditor.capture.probes.numerics import op_ranges
from auditor.capture.probes.numerics.op_ranges import OpRangesProbe
from tests.capture.drive import watched


def rows_of(folder, source, steps=3):
    user, drive = watched(folder, source, OpRangesProbe, run="numbers", steps=steps)
    rows = drive.rows("numerics")
    assert not drive.warnings
    return user, {f"{row['what']} {row['op']}": row for row in rows}


POLE = """import torch
model = torch.nn.Linear(2, 2, bias=False)
x = torch.tensor([[0.0, 0.0], [1.0, 1.0]])

def step():
    model.zero_grad()
    score = model(x)
    root = torch.sqrt(score.square().sum(-1))  # root
    kept = torch.where(root > 0, 1 / root, torch.zeros_like(root))  # quotient
    (root.sum() * 0 + kept.sum()).backward()
"""


def test_what_our_hook_on_a_node_raises_does_not_reach_the_backward(tmp_path, monkeypatch):
    def fails(*_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(op_ranges, "_makes_nonfinite", fails)
    user, rows = rows_of(tmp_path, POLE)
    assert user.model.weight.grad is not None
    assert "gradient reciprocal" not in rows
