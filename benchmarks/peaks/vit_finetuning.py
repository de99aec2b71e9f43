"""Fine-tuning torchvision's ViT-L/16 to ten classes of images of 224 x 224, with the precision, the
batch size, the optimizer and the accumulation that are given; then a batch to validate, and one
of eight images.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from measure import Peaks
from torch import nn
from torchvision.models import vit_l_16


def as_in_june_2023() -> None:
    """Two things that torch's nightlies did then: flash attention gave its output in the order of its
    computation, so that it was copied for the projection; Adam kept a second temporary of each
    parameter.
    """
    attend, add = nn.functional.scaled_dot_product_attention, torch._foreach_add_

    def reordered(*args: Any, **more: Any) -> torch.Tensor:
        y = attend(*args, **more)
        half = y.dtype != torch.float32
        return y.transpose(1, 2).contiguous().transpose(1, 2) if half and y.requires_grad else y

    def added(tensors: Any, value: Any, **more: Any) -> Any:
        if isinstance(value, float):  # Adam's eps
            torch._foreach_add(tensors, value)
        return add(tensors, value, **more)

    nn.functional.scaled_dot_product_attention = reordered
    torch._foreach_add_ = added


def forward_of(model: nn.Module, precision: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """The model's forward: ``32``, ``16-mixed`` (autocast to float16) or ``bf16-true``, where inputs
    are cast and outputs cast back.
    """

    def forward(x: torch.Tensor) -> torch.Tensor:
        if precision == "bf16-true":
            return model(x.to(torch.bfloat16)).float()
        with torch.autocast("cuda", dtype=torch.float16, enabled=precision == "16-mixed"):
            y = model(x)
        return y.float()

    return forward


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precision", choices=["32", "16-mixed", "bf16-true"], default="32")
    parser.add_argument("--optimizer", choices=["Adam", "SGD"], default="Adam")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--june-2023", action="store_true", help="as torch's nightlies were then")
    chosen = parser.parse_args()
    if chosen.june_2023:
        as_in_june_2023()
    torch.set_float32_matmul_precision("highest" if chosen.precision == "32" else "high")
    model = vit_l_16()
    model.heads.head = nn.Linear(1024, 10)
    if chosen.precision == "bf16-true":
        model.to(torch.bfloat16)
    model.to("cuda")
    optimizer = getattr(torch.optim, chosen.optimizer)(model.parameters(), lr=5e-5)
    scaler = torch.amp.GradScaler("cuda", enabled=chosen.precision == "16-mixed")
    forward, peaks = forward_of(model, chosen.precision), Peaks()
    model.train()
    for step in range(chosen.steps):
        images = torch.zeros(chosen.batch, 3, 224, 224).to("cuda")
        classes = torch.zeros(chosen.batch, dtype=torch.long).to("cuda")
        logits = forward(images)
        loss = nn.functional.cross_entropy(logits, classes)
        if chosen.accumulate == 1:
            optimizer.zero_grad()
        else:
            loss = loss / chosen.accumulate
        scaler.scale(loss).backward()
        if step % chosen.accumulate == 0:
            scaler.step(optimizer)
            scaler.update()
            if chosen.accumulate > 1:
                optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for size in (chosen.batch, min(8, chosen.batch)):
            images = torch.zeros(size, 3, 224, 224).to("cuda")
            classes = forward(images).argmax(dim=1)
    peaks.tell(parameters=sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    main()
