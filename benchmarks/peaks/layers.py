"""Forward and backward of single layers and losses, ten times without clearing gradients, as a
library of kernels measures them. Each figure is the median of the ten peaks.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from measure import Peaks
from torch import nn

Run = Callable[[], None]


class GatedMlp(nn.Module):
    """down(act(gate(x)) * up(x)), as in Llama."""

    def __init__(self, width: int, inner: int, activation: nn.Module) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down, self.activation = nn.Linear(inner, width, bias=False), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (..., width)."""
        return self.down(self.activation(self.gate(x)) * self.up(x))


def mlp(size: int, batch: int, activation: nn.Module, width: int = 4096, inner: int = 11008) -> Run:
    x = torch.randn(batch, size, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    layer = GatedMlp(width, inner, activation).to("cuda").to(torch.bfloat16)

    def run() -> None:
        y = layer(x)
        y.backward(torch.randn_like(y), retain_graph=True)

    return run


def cross_entropy(size: int) -> Run:
    """Of 16,384 rows and ``size`` classes in float32."""
    logits = torch.randn(8 * 2048, size, requires_grad=True, device="cuda")
    classes = torch.randint(size, (8 * 2048, 1), device="cuda").squeeze(1)
    loss = nn.CrossEntropyLoss()

    def run() -> None:
        y = loss(logits, classes)
        y.backward()

    return run


class Head(nn.Module):
    """Logits of 128,256 words and their cross entropy. The logits end with the call."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Linear(4096, 128256, bias=False, dtype=torch.bfloat16)
        self.loss = nn.CrossEntropyLoss(reduction="mean")

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """The loss of x (rows, 4096)."""
        logits = self.words(x)
        return self.loss(logits, classes)


def head_and_loss(size: int) -> Run:
    """Of ``size`` rows in bfloat16. A second head lies on the device beside it, as in the published
    program.
    """
    head, other = Head().to("cuda"), Head().to("cuda")
    x = torch.randn(size, 4096, requires_grad=True, dtype=torch.bfloat16, device="cuda")
    classes = torch.randint(128256, (size, 1), device="cuda").squeeze(1)

    def run() -> None:
        y = head(x, classes)
        y.backward()
        assert other is not None

    return run


def layer_norm(size: int) -> Run:
    """4,096 rows of ``size`` in float32. A second layer lies beside it."""
    layer, other = nn.LayerNorm(size).to("cuda"), nn.LayerNorm(size).to("cuda")
    x = torch.randn(4096, size, device="cuda")
    gradient = torch.randn_like(x)
    x.requires_grad_()

    def run() -> None:
        y = layer(x)
        y.backward(gradient, retain_graph=True)
        assert other is not None

    return run


PROGRAMS: dict[str, Callable[[int], Run]] = {
    "swiglu": lambda size: mlp(size, 4, nn.SiLU()),
    "geglu": lambda size: mlp(size, 8, nn.GELU(approximate="tanh")),
    "small-swiglu": lambda size: mlp(size, 2, nn.SiLU(), 2048, 4096),
    "cross-entropy": cross_entropy,
    "head-and-loss": head_and_loss,
    "layer-norm": layer_norm,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("size", type=int)
    chosen = parser.parse_args()
    run = PROGRAMS[chosen.program](chosen.size)
    peaks, each = Peaks(), []
    for _ in range(10):
        torch.cuda.reset_peak_memory_stats()
        run()
        each.append(torch.cuda.max_memory_allocated())
    peaks.tell(median=int(statistics.median(each)))


if __name__ == "__main__":
    main()
