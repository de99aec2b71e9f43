"""What probes of optimizers have in common."""

import pytest
from auditor.rules.num.probes.grad_norms import GradNormsProbe
from torch.optim import optimizer as torch_optimizer
from torch.optim.optimizer import Optimizer

from auditor.capture.probes.optim import optimizer_hooks
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe
from tests.capture.drive import Drive, load

SOURCE = """import torch, weakref
made = []

def step():
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    inner = torch.optim.SGD([weight], lr=0.1)
    made.append(weakref.ref(inner))
    (weight * 2).sum().backward()
    inner.step()
"""


def test_while_a_graph_is_recorded_nobody_is_told(tmp_path, monkeypatch):
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, GradNormsProbe) as drive:
        monkeypatch.setattr(optimizer_hooks, "capturing", lambda: True)
        drive.run("loud", user.step, steps=1)
        assert drive.rows("norms") == []
        monkeypatch.undo()
        drive.run("loud", user.step, steps=1)
        assert len(drive.rows("norms")) == 1


def test_only_what_a_probe_looks_at_is_hooked(tmp_path):
    class After(OptimizerProbe):
        def after_optimizer(self, optimizer: object) -> None:
            pass

    hooks = (
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    )
    before = [len(each) for each in hooks]
    with Drive(tmp_path, After):
        assert [len(each) for each in hooks] == [before[0], before[1] + 1]
    assert [len(each) for each in hooks] == before


CLOSURE = """import torch
weight = torch.nn.Parameter(torch.zeros(4))
optimizer = torch.optim.{optimizer}([weight], lr=0.1)
count = [0]

def closure():
    count[0] += 1
    optimizer.zero_grad()
    loss = (weight * count[0] - 1).square().sum()
    loss.backward()
    return loss

def step():
    optimizer.step({given})
"""


@pytest.mark.parametrize("given", ["closure", "closure=closure"])
@pytest.mark.parametrize("optimizer", ["SGD", "LBFGS"])
def test_a_closure_has_made_the_gradients_when_a_step_is_told_of(tmp_path, given, optimizer):
    told: list[tuple[int, bool]] = []

    class Before(OptimizerProbe):
        def before_optimizer(self, optimizer: Optimizer) -> None:
            told.append((user.count[0], user.weight.grad is not None))

    user = load(tmp_path, CLOSURE.format(optimizer=optimizer, given=given))
    plain = load(tmp_path, CLOSURE.format(optimizer=optimizer, given=given))
    with Drive(tmp_path, Before):
        user.step()
        calls = user.count[0]
        user.step()
    assert told == [(1, True), (calls + 1, True)]
    plain.step()
    plain.step()
    assert user.weight.equal(plain.weight)
    assert user.count == plain.count
