"""What a step computes is written down exactly; a trial's imports come from the copy."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS
from auditor.capture.process import moved
from auditor.extensions.verify.trials import Results
from auditor.runs.plan import Copied
from tests.inprocess import record

HERE = Path(__file__)
STEPS, WARMUP = 6, 2


def make() -> Any:
    torch.manual_seed(3)
    model = torch.nn.Linear(5, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step() -> tuple[torch.Tensor, Any]:
        optimizer.zero_grad()
        loss = model(torch.randn(4, 5)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach().clone(), model

    return step


def test_losses_and_parameters_are_those_of_the_bare_loop_bit_for_bit(tmp_path):
    results = Results.read(record(tmp_path / "r", make, ("results",), roots=[HERE], steps=STEPS))
    step = make()
    bare = [step() for _ in range(WARMUP + STEPS)]
    assert results.losses == tuple(float(loss) for loss, _ in bare)
    norms = [
        float(torch.linalg.vector_norm(each.detach(), dtype=torch.float64))
        for each in bare[-1][1].parameters()
    ]
    assert [norm for _, norm, _ in results.parameters] == norms
    assert [place for place, _, _ in results.parameters] == [
        f"optimizer 0, group 0, parameter {p}" for p in range(2)
    ]
    assert list(results.names.values()) == [
        f"{type(bare[-1][1]).__name__}.{name}" for name, _ in bare[-1][1].named_parameters()
    ]


def test_what_the_compiler_traces_is_no_backward_of_the_program(tmp_path):
    def compiled() -> Any:
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Dropout(0.5))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        forward = torch.compile(model, backend="aot_eager")

        def step() -> None:
            optimizer.zero_grad()
            forward(torch.randn(4, 5)).square().mean().backward()
            optimizer.step()

        return step

    torch._dynamo.reset()
    recording = record(tmp_path / "r", compiled, ("results",), roots=[HERE], steps=STEPS)
    taken = {each["name"]: each["steps"] for each in recording.manifest["passes"]}
    assert taken["warmup"] > WARMUP  # what compiles warms up longer
    assert len(Results.read(recording).losses) == taken["warmup"] + taken["quiet"]
    assert not any("results" in each for each in recording.manifest["warnings"])


def test_every_kind_of_backward_counts_and_the_door_is_left(tmp_path):
    def penalised() -> Any:
        weight = torch.ones(3, requires_grad=True)

        def step() -> None:
            (gradient,) = torch.autograd.grad(weight.square().sum(), weight, create_graph=True)
            torch.autograd.backward([gradient.sum(), 2 * weight.sum()])
            (weight * 4).backward(torch.ones(3))

        return step

    results = Results.read(record(tmp_path / "r", penalised, ("results",), roots=[HERE], steps=1))
    assert results.losses == (3.0, 6.0, 6.0, 12.0) * (WARMUP + 1)
    assert results.parameters == ()
    assert not BACKWARD_HOOKS._watchers
    assert not BACKWARD_HOOKS._installed


@pytest.mark.parametrize(
    ("entry", "after"),
    [
        ("/home/me/project", "/tmp/copy"),
        ("/home/me/project/src", "/tmp/copy/src"),
        ("/home/me/project2", "/home/me/project2"),
        ("/usr/lib/python3", "/usr/lib/python3"),
        (
            "/home/me/project/.venv/lib/python3.11/site-packages",
            "/home/me/project/.venv/lib/python3.11/site-packages",
        ),
        ("", ""),
    ],
)
def test_imports_from_the_project_come_from_the_copy(entry, after):
    assert moved(entry, Copied("/tmp/copy", "/home/me/project", "/tmp", "/tmp/kept")) == after


def test_the_running_environment_stays_where_it_is():
    inside = f"{sys.prefix}/lib/something"
    assert moved(inside, Copied("/tmp/copy", sys.prefix, "/tmp", "/tmp/kept")) == inside
