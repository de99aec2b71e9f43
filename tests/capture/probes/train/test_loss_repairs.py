"""The second gradient of a loss: what is computed again, and that nothing of it stays."""

import math
import textwrap

import pytest
import torch
import torch.nn.functional as F
from auditor.rules.train.probes import second_gradient, token_weights
from auditor.rules.train.probes.function_tape import MOST, FunctionTape, TapeRequest
from auditor.rules.train.probes.loss_repairs import LossRepairsProbe

from tests.capture.drive import Drive, load, watched

BROADCAST = """
import torch
from torch.nn import functional as F

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

def step():
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    F.mse_loss(model(x), x.sum(1)).backward()  # loss
    optimizer.step()
"""


def run(folder, source, steps=2):
    user, drive = watched(folder, source, LossRepairsProbe, run="gradients", steps=steps)
    return user, drive.rows("repairs"), drive.rows("token_weights"), drive.rows("lapses")


def state_of(user):
    """Everything that training leaves, as bytes."""
    tensors = [*user.model.state_dict().values(), *(p.grad for p in user.model.parameters())]
    held = [
        each
        for state in user.optimizer.state.values()
        for each in state.values()
        if isinstance(each, torch.Tensor)
    ]
    return [each.clone() for each in (*tensors, *held, torch.get_rng_state())]


ACCUMULATED = """
import torch
from torch.nn import functional as F

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(9, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 7))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

def step():
    optimizer.zero_grad()
    for kept in (12, 1, 5):
        labels = torch.randint(0, 7, (2, 12))
        labels[:, kept:] = -100
        out = model(torch.randint(0, 9, (2, 12)))
        (F.cross_entropy(out.flatten(0, 1), labels.flatten()) / 3).backward()  # loss
    optimizer.step()
"""


def angle_and_ratio(model, *losses):
    """Between the gradients of two losses, computed by hand."""
    grads = (
        torch.autograd.grad(one, list(model.parameters()), retain_graph=True) for one in losses
    )
    one, two = (torch.cat([each.flatten() for each in some]).double() for some in grads)
    cosine = float(one @ two / one.norm() / two.norm())
    return math.degrees(math.acos(cosine)), float(one.norm() / two.norm())


def test_gradients_are_those_of_both_losses(tmp_path):
    source = BROADCAST.replace("torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), ", "")
    plain = load(tmp_path, source)
    x = torch.randn(16, 4)
    out = plain.model(x)
    with pytest.warns():
        losses = [F.mse_loss(out, target) for target in (x.sum(1), x.sum(1)[:, None])]
    wanted = angle_and_ratio(plain.model, *losses)
    user, (first, second), _, _ = run(tmp_path, source)
    assert (first["angle"], first["ratio"]) == pytest.approx(wanted, rel=1e-4)
    assert (first["over"], second["over"]) == ("parameters", "outputs")
    assert (first["given"], first["other"]) == ([16, 1], [16])


def test_a_hook_of_the_program_runs_no_more_often(tmp_path):
    """A second backward would run it again: the gradients are compared before it."""
    source = BROADCAST.replace(
        "    F.mse_loss(model(x), x.sum(1))",
        "    out = model(x)\n    out.register_hook(lambda grad: calls.append(1))\n"
        "    F.mse_loss(out, x.sum(1))",
    ).replace("def step", "calls = []\n\ndef step")
    user, repairs, _, _ = run(tmp_path, source)
    assert len(user.calls) == 2
    assert [row["over"] for row in repairs] == ["outputs", "outputs"]


@pytest.mark.parametrize(
    "wrapped", ["checkpoint.checkpoint(model, x, use_reentrant=False)", "Own.apply(model(x))"]
)
def test_code_of_the_program_in_the_graph_runs_no_more_often(tmp_path, wrapped):
    source = BROADCAST.replace("F.mse_loss(model(x)", f"F.mse_loss({wrapped}").replace(
        "def step",
        textwrap.dedent("""
        from torch.utils import checkpoint
        calls = []

        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2
            @staticmethod
            def backward(ctx, grad):
                calls.append(1)
                return grad * 2

        model[0].register_forward_hook(lambda *_: calls.append(1))

        def step"""),
    )
    plain = load(tmp_path, source)
    for _ in range(2):
        plain.step()
    user, repairs, _, _ = run(tmp_path, source)
    assert len(user.calls) == len(plain.calls)
    assert [row["over"] for row in repairs] == ["outputs", "outputs"]


def test_variables_of_a_module_stay(tmp_path):
    """A frame of a module has its globals as locals (before Python 3.13)."""
    folder = tmp_path / "script"
    folder.mkdir()
    source = """
import torch
from torch.nn import functional as F
model = torch.nn.Sequential(torch.nn.Embedding(9, 8), torch.nn.Linear(8, 9))
tokens = torch.randint(1, 8, (4, 12))
lengths = torch.tensor([12, 3, 6, 2])
for row, length in enumerate(lengths.tolist()):
    tokens[row, length:] = 8
F.cross_entropy(model(tokens).transpose(1, 2), tokens).backward()
left = sorted(name for name in globals() if not name.startswith("__"))
"""
    with Drive(tmp_path, LossRepairsProbe) as drive:
        with drive.running("gradients"):
            found = {}
            drive.step(lambda: found.update(names=load(folder, source).left))
        (row,) = drive.rows("repairs")
    assert {"model", "tokens", "lengths", "F", "torch"} <= set(found["names"])
    assert (row["defect"], row["padded"], row["by"]) == ("padding", 25, "lengths")


def test_what_was_written_over_is_not_repeated(tmp_path):
    source = """
import torch
from torch.nn import functional as F
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)

def step():
    x, scale = torch.randn(16, 4), torch.ones(16, 1)
    out = model(x) * scale
    target = x.sum(1)
    loss = F.mse_loss(out, target)
    target.zero_()
    model.zero_grad()
    try:
        loss.backward()
    except RuntimeError:
        pass
"""
    _, repairs, _, lapses = run(tmp_path, source)
    assert repairs == []
    assert lapses == []


def test_the_tape_keeps_the_newest_calls(tmp_path):
    with Drive(tmp_path, LossRepairsProbe) as drive:
        drive.context.in_step = True
        tape = FunctionTape(drive.context, TapeRequest(lambda name, given: False), _raised)
        first = torch.ones(2, requires_grad=True)
        with tape:
            made = first * 2
            last = made
            for _ in range(MOST):
                last = last + 1
        assert len(tape.calls) == MOST
        assert tape.maker(made) is None
        assert tape.maker(last) is not None
        tape.clear()
        assert tape.maker(last) is None


def _raised(error):
    raise error


def test_opposite_gradients_are_half_a_turn_apart():
    one = torch.tensor([1.0, 0.0])
    assert second_gradient.angle_and_ratio([(one, -2 * one)]) == (180.0, 0.5)
    assert second_gradient.angle_and_ratio([(one, one)]) == (0.0, 1.0)
    for wrong in (one * 0, one * math.inf, one * math.nan):
        with pytest.raises(second_gradient.NotRepeated):
            second_gradient.angle_and_ratio([(one, wrong)])


def test_weighed_micro_batches_are_the_gradient_of_all_tokens(tmp_path):
    plain = load(tmp_path, ACCUMULATED.replace("torch.nn.Dropout(0.1), ", ""))
    out, labels = [], []
    for kept in (12, 1, 5):
        label = torch.randint(0, 7, (2, 12))
        label[:, kept:] = -100
        labels.append(label.flatten())
        out.append(plain.model(torch.randint(0, 9, (2, 12))).flatten(0, 1))
    loss = sum(F.cross_entropy(one, two) / 3 for one, two in zip(out, labels, strict=True))
    together = F.cross_entropy(torch.cat(out), torch.cat(labels))
    wanted = angle_and_ratio(plain.model, loss, together)
    _, _, weights, _ = run(tmp_path, ACCUMULATED.replace("torch.nn.Dropout(0.1), ", ""))
    assert (weights[0]["angle"], weights[0]["ratio"]) == pytest.approx(wanted, rel=1e-3)
    assert weights[0]["tokens"] == [24, 2, 10]


def test_gradients_of_an_earlier_step_are_not_taken_for_this_ones():
    leaf = torch.ones(3, requires_grad=True)
    leaf.grad = torch.ones(3)
    sums = token_weights.Sums()
    for tokens in (5, 2):
        sums.begins(token_weights.Mean(1, "cross_entropy", tokens, 1.0, ragged=True), [leaf])
        leaf.grad += 1
        sums.ends()
    assert not sums.unequal
