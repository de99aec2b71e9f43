"""How far two trainings part that cut the same samples into other micro-batches, by rounding and by
error. A Markdown table.

    OMP_NUM_THREADS=1 python benchmarks/batch_rounding.py

Twenty optimizer steps of 8 micro-batches of 4 samples, against those of 4 of 8 and 1 of 32.
*Losses*: largest relative difference between the losses of one optimizer step. *Parameters*:
distance of the ends, as a share of the way from the start. The tolerances of
``auditor/extensions/verify/results.py`` stand between the rows of rounding and those of error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn.functional import cross_entropy

STEPS, SAMPLES, EFFECTIVE, VOCABULARY, LENGTH = 20, 1024, 32, 50, 16
Optimizer = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]
Loss = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]

OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.1),
}


class Texts(nn.Module):
    """A small transformer that guesses the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 32)
        layers = [
            nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        ]
        self.body = nn.Sequential(*layers, nn.Linear(32, VOCABULARY))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of each token."""
        out: torch.Tensor = self.body(self.tokens(x))
        return out


def convolutional(*inner: nn.Module) -> nn.Module:
    """A small image classifier."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3),
        *inner,
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(288, 10),
    )


def perceptron() -> nn.Module:
    """Three layers."""
    return nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )


def mean(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of a classifier."""
    return cross_entropy(model(x).float(), y)


def summed(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The same without its mean."""
    return cross_entropy(model(x).float(), y, reduction="sum")


def next_token(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of a language model; token 0 is padding."""
    return cross_entropy(model(x[:, :-1]).float().flatten(0, 1), x[:, 1:].flatten(), ignore_index=0)


def numbers() -> tuple[torch.Tensor, torch.Tensor]:
    """Samples of a classifier."""
    draw = torch.Generator().manual_seed(5)
    return torch.randn(SAMPLES, 64, generator=draw), torch.randint(
        0, 10, (SAMPLES,), generator=draw
    )


def tokens(shortest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts of unequal lengths from ``shortest`` on."""
    draw = torch.Generator().manual_seed(5)
    texts = torch.randint(1, VOCABULARY, (SAMPLES, LENGTH), generator=draw)
    lengths = torch.randint(shortest, LENGTH + 1, (SAMPLES, 1), generator=draw)
    return texts.masked_fill(torch.arange(LENGTH) >= lengths, 0), lengths


CASES: dict[
    str, tuple[Callable[[], nn.Module], Callable[[], tuple[torch.Tensor, torch.Tensor]], Loss, bool]
] = {
    "perceptron": (perceptron, numbers, mean, False),
    "convolutions": (convolutional, numbers, mean, False),
    "transformer": (Texts, lambda: tokens(LENGTH), next_token, False),
    "error: batch norm": (lambda: convolutional(nn.BatchNorm2d(8)), numbers, mean, False),
    "error: summed loss": (perceptron, numbers, summed, False),
    "error: texts of 12 to 16 tokens": (Texts, lambda: tokens(12), next_token, False),
    "error: texts of 15 and 16 tokens": (Texts, lambda: tokens(15), next_token, False),
    "bfloat16: perceptron": (perceptron, numbers, mean, True),
    "bfloat16: transformer": (Texts, lambda: tokens(LENGTH), next_token, True),
}


def trained(
    case: str, optimizer: Optimizer, batch: int
) -> tuple[torch.Tensor, torch.Tensor, list[float]]:
    """All parameters before and after, and the loss of each optimizer step."""
    make, draw, loss_of, half = CASES[case]
    torch.manual_seed(0)
    model, (xs, ys) = make(), draw()
    stepping, start = optimizer(model.parameters()), _flat(model)
    losses = []
    for step in range(STEPS):
        losses.append(0.0)
        for at in range(step * EFFECTIVE, (step + 1) * EFFECTIVE, batch):
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                loss = loss_of(model, xs[at : at + batch], ys[at : at + batch]) * batch / EFFECTIVE
            loss.backward()
            losses[-1] += loss.item()
        stepping.step()
        stepping.zero_grad()
    return start, _flat(model), losses


def _flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().double().flatten() for parameter in model.parameters()])


def distances(case: str, optimizer: Optimizer, batch: int) -> tuple[float, float]:
    """Of losses and of parameters, to the training with micro-batches of 4."""
    start, end, losses = trained(case, optimizer, 4)
    _, other_end, others = trained(case, optimizer, batch)
    loss = max(
        abs(one - other) / max(abs(one), abs(other))
        for one, other in zip(losses, others, strict=True)
    )
    return loss, float((end - other_end).norm() / (end - start).norm())


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print("| | losses | parameters |\n|---|---|---|")
    for case in CASES:
        found = [
            distances(case, optimizer, batch)
            for optimizer in OPTIMIZERS.values()
            for batch in (8, 32)
        ]
        columns = [sorted(values) for values in zip(*found, strict=True)]
        told = (
            f"{values[0]:.0e} to {values[-1]:.0e}" if math.isfinite(values[-1]) else "not finite"
            for values in columns
        )
        print(f"| {case} | {' | '.join(told)} |")


if __name__ == "__main__":
    main()
