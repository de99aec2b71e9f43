"""The probe of delicate operators: dtypes that ran, what came before, the loss's part."""

from auditor import shadow_cuda
from auditor.capture.probes.numerics import op_ranges
from auditor.capture.probes.numerics.op_ranges import OpRangesProbe
from tests.capture.drive import line_of, load, watched

SOURCE = """import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
losses = []

def step():
    with torch.autocast("cpu", dtype=torch.float16):
        score = torch.sigmoid(model(torch.ones(2, 4)))
        kept = score + 1e-8  # floor
        value = torch.log(kept)  # logarithm
        gate = torch.exp(model(torch.ones(2, 4)))  # gate
        again = (gate.t() @ gate).mean()
    loss = -value.float().mean() + again.float()
    losses.append(loss.item())
    loss.backward()
"""


def rows_of(folder, source, steps=3):
    user, drive = watched(folder, source, OpRangesProbe, run="numbers", steps=steps)
    rows = drive.rows("numerics")
    assert not drive.warnings
    return user, {f"{row['what']} {row['op']}": row for row in rows}


def test_infinities_are_written_as_text(tmp_path):
    source = """import torch
x = torch.zeros(3, requires_grad=True)
def step():
    (torch.log(x) * float("inf")).sum().backward()
    torch.exp(torch.log(x)).sum()
"""
    _, rows = rows_of(tmp_path, source)
    assert (rows["function exp"]["low"], rows["function exp"]["high"]) == ("-inf", "-inf")


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


def test_a_pole_that_a_gradient_met(tmp_path):
    alone = load(tmp_path, POLE)
    alone.step()
    user, rows = rows_of(tmp_path, POLE)
    assert rows["gradient reciprocal"]["at_line"] == line_of(user, "quotient")
    wanted = (True, 3)
    assert (rows["gradient reciprocal"]["unasked"], rows["gradient reciprocal"]["steps"]) == wanted
    assert "gradient sqrt" not in rows  # what came in was not finite any more
    assert user.model.weight.grad.isnan().equal(alone.model.weight.grad.isnan())


def test_a_graph_that_is_kept_keeps_no_hook(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        op_ranges, "_made", lambda *given, made=op_ranges._made: calls.append(given) or made(*given)
    )
    source = POLE.replace(".backward()", ".backward(retain_graph=True)").replace(
        "    kept", "    global kept\n    kept", 1
    )
    user, _ = rows_of(tmp_path, source, steps=1)
    assert len(calls) == 2
    user.kept.sum().backward()
    assert len(calls) == 2


def test_what_our_hook_on_a_node_raises_does_not_reach_the_backward(tmp_path, monkeypatch):
    def fails(*_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(op_ranges, "_made", fails)
    user, rows = rows_of(tmp_path, POLE)
    assert user.model.weight.grad is not None
    assert "gradient reciprocal" not in rows


def test_the_shadow_device_is_no_library_below_the_line(tmp_path):
    on_gpu = SOURCE.replace("Linear(4, 1)", 'Linear(4, 1, device="cuda")').replace(
        "ones(2, 4)", 'ones(2, 4, device="cuda")'
    )
    with shadow_cuda():
        _, rows = rows_of(tmp_path, on_gpu.replace('autocast("cpu"', 'autocast("cuda"'))
    assert rows["epsilon add"]["dtype"] == "float16"
    delicate = [row for row in rows.values() if row["what"] != "loss"]
    assert {row["at_site"].get("via") for row in delicate} <= {
        None,
        "torch/nn/modules/linear.py:forward",
    }
