"""Ten small trainers that go non-finite at step 4, each for a reason of its own. ``# born`` marks
the line that does it.

Generator functions: one step for each ``next``. ``benchmarks/nan_origins.py`` asks several tools
for that line, and so does ``tests/seam/test_planted_nans.py`` of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

BAD_STEP = 4

ON_MODEL: list[Callable[[nn.Module], None]] = []
"""Told of each model before it is trained: a tool that wants the model gets it here."""


@dataclass(frozen=True)
class Truth:
    """What a tool should name: the operator, and the module whose forward runs there (empty:
    none).
    """

    operator: str
    module: str = ""


TRUTH = {
    "log_in_the_loss": Truth("log"),
    "exp_in_a_module": Truth("exp", "router"),
    "root_at_zero_in_backward": Truth("sqrt", "distance"),
    "own_function_in_backward": Truth("div"),
    "plain_function_sinkhorn": Truth("exp"),
    "under_autocast": Truth("exp", "gate"),
    "zero_row_normalised": Truth("div", "unit"),
    "optimizer_state": Truth("addcdiv"),
    "branch_not_taken": Truth("sqrt", "rooted"),
    "row_with_everything_masked": Truth("softmax", "attention"),
}


class Part(nn.Module):
    """A module whose forward is one function, so that each trainer's bad line stands where the
    trainer is.
    """

    def __init__(self, compute: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        """Whatever the trainer says."""
        return self.compute(*given)


class Net(nn.ModuleDict):
    """A linear body, and beside it the parts that a trainer calls."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Through the body."""
        out: torch.Tensor = self["body"](x)
        return out


def _model(**parts: Callable[..., torch.Tensor]) -> Net:
    torch.manual_seed(0)
    model = Net(
        {"body": nn.Linear(8, 8), **{name: Part(compute) for name, compute in parts.items()}}
    )
    for tell in ON_MODEL:
        tell(model)
    return model


def _trained(model: nn.Module, loss_at: Callable[[int], torch.Tensor]) -> Iterator[None]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        optimizer.zero_grad()
        loss_at(step).backward()
        optimizer.step()
        step += 1
        yield


X = torch.linspace(-1, 1, 32).reshape(4, 8)


def log_in_the_loss() -> Iterator[None]:
    """The probability underflows."""
    model = _model()

    def loss(step: int) -> torch.Tensor:
        score = model(X) - (200.0 if step == BAD_STEP else 0.0)
        return -torch.log(torch.sigmoid(score)).mean()  # born

    yield from _trained(model, loss)


def exp_in_a_module() -> Iterator[None]:
    """Weights of a router, not normalised in logarithms."""

    def route(score: torch.Tensor) -> torch.Tensor:
        weights = torch.exp(score)  # born
        return weights / weights.sum(-1, keepdim=True)

    model = _model(router=route)
    yield from _trained(
        model,
        lambda step: model["router"](model(X) * (1e3 if step == BAD_STEP else 1.0))[:, 0].mean(),
    )


def root_at_zero_in_backward() -> Iterator[None]:
    """Finite in the forward; the derivative is not."""

    def distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.sqrt((a - b).square().sum(-1))  # born

    model = _model(distance=distance)

    def loss(step: int) -> torch.Tensor:
        out = model(X)
        return (
            model["distance"](out, out.detach() if step == BAD_STEP else X).mean()
            + out.square().mean()
        )

    yield from _trained(model, loss)


class Scaled(torch.autograd.Function):
    """Multiplies, and divides in its own backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        """``x * by``."""
        ctx.save_for_backward(by)
        return x * by

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """Wrong on purpose."""
        (by,) = ctx.saved_tensors
        return gradient / by, None  # born


def own_function_in_backward() -> Iterator[None]:
    """A custom autograd function divides by zero in its backward."""
    model = _model()
    yield from _trained(
        model,
        lambda step: Scaled.apply(model(X), torch.tensor(0.0 if step == BAD_STEP else 1.0)).sum(),
    )


def transport(score: torch.Tensor) -> torch.Tensor:
    """Sinkhorn in plain numbers."""
    plan = torch.exp(score)  # born
    for _ in range(3):
        plan = plan / plan.sum(-1, keepdim=True)
        plan = plan / plan.sum(-2, keepdim=True)
    return plan


def plain_function_sinkhorn() -> Iterator[None]:
    """The overflow is in a function outside of all modules; the NaN comes lines later."""
    model = _model()
    yield from _trained(
        model, lambda step: transport(model(X) * (1e3 if step == BAD_STEP else 1.0)).square().mean()
    )


def under_autocast() -> Iterator[None]:
    """In bfloat16."""

    def gate(x: torch.Tensor) -> torch.Tensor:
        opened = torch.exp(x)  # born
        return opened / (1 + opened)

    model = _model(gate=gate)

    def loss(step: int) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model["gate"](model(X) * (1e3 if step == BAD_STEP else 1.0)).float().mean()

    yield from _trained(model, loss)


def zero_row_normalised() -> Iterator[None]:
    """0 / 0."""

    def unit(x: torch.Tensor) -> torch.Tensor:
        return x / x.norm(dim=-1, keepdim=True)  # born

    model = _model(unit=unit)
    yield from _trained(
        model, lambda step: model["unit"](model(X) * (0.0 if step == BAD_STEP else 1.0)).sum()
    )


def optimizer_state() -> Iterator[None]:
    """Adam without an epsilon, and a gradient that was never anything but zero: 0 / 0 in the
    update.
    """
    model = _model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    step = 0
    while True:
        optimizer.zero_grad()
        (model(X)[:, 1:] ** 2).mean().backward()
        for group in optimizer.param_groups:
            group["eps"] = 0.0 if step == BAD_STEP else 1e-8
        optimizer.step()  # born
        step += 1
        yield


def branch_not_taken() -> Iterator[None]:
    """``where`` hides the NaN in the forward and not in the backward."""

    def rooted(x: torch.Tensor) -> torch.Tensor:
        root = torch.sqrt(x)  # born
        return torch.where(x > 0, root, x)

    model = _model(rooted=rooted)
    yield from _trained(
        model,
        lambda step: model["rooted"](model(X).abs() + (-50.0 if step == BAD_STEP else 1.0)).mean(),
    )


def row_with_everything_masked() -> Iterator[None]:
    """A softmax over nothing but ``-inf``."""

    def attend(score: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax(score + mask, -1)  # born

    model = _model(attention=attend)
    causal = torch.full((4, 4), -float("inf")).triu(1)
    closed = causal.clone()
    closed[2] = -float("inf")

    def loss(step: int) -> torch.Tensor:
        x = model(X)
        return model["attention"](x @ x.T, closed if step == BAD_STEP else causal)[:, 0].mean()

    yield from _trained(model, loss)


def born_line(name: str) -> int:
    """Line of the first ``# born`` in the code of the trainer (of the free function or class that
    it uses, if it has none).
    """
    import ast
    from pathlib import Path

    text = Path(__file__).read_text(encoding="utf-8")
    uses = {"own_function_in_backward": "Scaled", "plain_function_sinkhorn": "transport"}
    node = next(
        each for each in ast.parse(text).body if getattr(each, "name", "") == uses.get(name, name)
    )
    lines = text.splitlines()
    first, last = node.lineno, node.end_lineno or node.lineno
    return next(number for number in range(first, last + 1) if lines[number - 1].endswith("# born"))
