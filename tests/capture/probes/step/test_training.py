"""Every honest way of training is known for one, and what trains nothing is never clean."""

import itertools
import threading
from pathlib import Path

import pytest
import torch
from torch.func import functional_call, grad

from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS
from auditor.evidence.recorded.steps import Trained
from auditor.evidence.table import Evidence
from auditor.judging import build_report, engine
from tests.inprocess import record

X = torch.ones(3, 4)


def net() -> torch.nn.Linear:
    return torch.nn.Linear(4, 2)


# -- what trains -----------------------------------------------------------------------------------


def optimizer():
    model = net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        model(X).sum().backward()
        sgd.step()

    return step


def hand_written_sgd():
    model = net()

    def step():
        gradients = torch.autograd.grad(model(X).sum(), list(model.parameters()))
        for p, g in zip(model.parameters(), gradients, strict=True):
            p.data -= 0.1 * g

    return step


def functional_transforms():
    model = net()
    state = {"params": {name: p.detach() for name, p in model.named_parameters()}}

    def step():
        slopes = grad(lambda params: functional_call(model, params, (X,)).sum())(state["params"])
        state["params"] = {name: p - 0.1 * slopes[name] for name, p in state["params"].items()}

    return step


def evolution_in_place():
    model = net()
    return torch.no_grad()(lambda: [p.add_(torch.randn_like(p)) for p in model.parameters()])


def behind_autograds_back():
    model = net()
    return lambda: model.weight.data.add_(0.1)


def through_numpy():
    model = net()
    view = model.weight.detach().numpy()

    def step():
        view[:] += 1.0
        assert model.weight[0, 0] > 0

    return step


def a_new_parameter_each_step():
    holder = {"w": torch.nn.Parameter(torch.ones(3))}
    return lambda: holder.update(w=torch.nn.Parameter(holder["w"].detach() * 0.9))


def backward_every_tenth_step():
    model, turns = net(), itertools.count(1)

    def step():
        loss = model(X).sum()
        if next(turns) % 10 == 0:
            loss.backward()

    return step


def learner_in_a_thread():
    model = net()

    def step():
        thread = threading.Thread(target=lambda: model(X).sum().backward())
        thread.start()
        thread.join()

    return step


def compiled():
    model = net()
    forward = torch.compile(lambda: model(X).sum(), backend="eager")
    return lambda: forward().backward()


def closure():
    model = net()
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def loss():
        lbfgs.zero_grad()
        value = model(X).square().sum()
        value.backward()
        return value

    return lambda: lbfgs.step(loss)


# -- what does not ---------------------------------------------------------------------------------


def forward_only():
    model = net()
    return lambda: model(X).sum()


def evaluation():
    model = net().eval()
    return torch.no_grad()(lambda: model(X).argmax(-1))


def inference_mode():
    model = net()
    return torch.inference_mode()(lambda: model(X))


def batch_norm_statistics():
    """Buffers are no parameters: what an evaluation in train mode changes is not learned."""
    model = torch.nn.BatchNorm1d(4)
    return torch.no_grad()(lambda: model(X))


def torch_without_a_model():
    return lambda: torch.ones(3).sum()


def no_torch():
    net()
    return lambda: sum(range(10))


def a_model_beside():
    model = net()
    return lambda: len(list(model.parameters()))


TRAINED = (
    *(optimizer, hand_written_sgd, functional_transforms, evolution_in_place),
    *(behind_autograds_back, through_numpy, a_new_parameter_each_step),
    *(backward_every_tenth_step, learner_in_a_thread, compiled, closure),
)
UNTRAINED = {
    forward_only: "forward",
    **dict.fromkeys((evaluation, inference_mode, batch_norm_statistics), "evaluated"),
    torch_without_a_model: "evaluated",
    **dict.fromkeys((no_torch, a_model_beside), "nothing"),
}


def trained(folder: Path, make) -> Trained:
    recording = record(folder, make, (), roots=[Path(__file__)], steps=8, warmup=5, device="cpu")
    assert not BACKWARD_HOOKS._watchers
    return Evidence(recording).get(Trained)


@pytest.mark.parametrize("make", TRAINED, ids=lambda make: make.__name__)
def test_honest_training_is_known_for_it(tmp_path, make):
    found = trained(tmp_path, make)
    assert (found.state, found.caveat) == ("trained", "")


@pytest.mark.parametrize("make", UNTRAINED, ids=lambda make: make.__name__)
def test_what_trains_nothing_is_said(tmp_path, make):
    found = trained(tmp_path, make)
    assert found.state == UNTRAINED[make]
    assert found.caveat.startswith("the target trained nothing in 21 steps")
    assert "package.module:callable" in found.caveat


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_a_parameter_that_holds_nan_all_along_is_not_changed(tmp_path, dtype):
    spoiled = torch.nn.Parameter(torch.tensor([1.0, float("nan"), 2.0], dtype=dtype))
    assert trained(tmp_path, forward_only).state == "forward"
    assert spoiled.numel() == 3  # alive till here


def test_the_report_says_it_first_and_a_run_that_ended_early_says_nothing(tmp_path):
    recording = record(tmp_path, forward_only, (), roots=[Path(__file__)], steps=8, device="cpu")
    report = build_report.report(Evidence(recording), engine.judge(Evidence(recording), ()), ())
    assert report.run.training == "forward"
    assert report.caveats == report.warnings[:1] and "autograd graphs" in report.caveats[0]
    recording.manifest["outcome"] = "raised"
    report = build_report.report(Evidence(recording), engine.judge(Evidence(recording), ()), ())
    assert (report.run.training, report.caveats) == (None, ())
