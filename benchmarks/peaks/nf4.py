"""Frozen linear layers kept as NF4 (4 bits a weight, a scale for each 64), dequantized by torch's
ordinary operators for each product, with LoRA matrices in float32 beside them.

Only what decides memory is here: codes and scales have the sizes and types of a quantized weight
and hold nothing. A weight is dequantized again for the gradient of the input, and not kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

BLOCK, SCALE_BLOCK = 64, 256
Stored = tuple[torch.Tensor, ...]


def stored(values: int, dtype: torch.dtype, *, nested: bool) -> Stored:
    """Codes (two a byte), scales, the table of a byte's two values; of nested scales their scales,
    offset and table, else three empty tensors.
    """
    blocks = -(-values // BLOCK)
    empty = torch.zeros(0, dtype=torch.float32)
    return (
        torch.zeros(blocks * BLOCK // 2, dtype=torch.uint8),
        torch.zeros(blocks, dtype=torch.uint8 if nested else torch.float32),
        torch.zeros(256, 2, dtype=dtype),
        torch.zeros(-(-blocks // SCALE_BLOCK)) if nested else empty,
        torch.zeros(()) if nested else empty,
        torch.zeros(256, 1) if nested else empty,
    )


def scales_of(parts: Stored) -> torch.Tensor:
    """The scale of each block, float32."""
    _, scales, _, outer, offset, table = parts
    if not outer.numel():
        return scales
    index = scales.to(torch.int32)
    found = functional.embedding(index, table).reshape(-1)
    del index
    # output_size is given because a null device cannot sum repeats; it takes no memory.
    spread = outer.repeat_interleave(SCALE_BLOCK, output_size=outer.numel() * SCALE_BLOCK)
    return found.mul_(spread[: scales.numel()]).add_(offset)


def weight_of(parts: Stored, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """The weight (outputs, inputs), dequantized."""
    scales = scales_of(parts).to(dtype)
    index = parts[0].to(torch.int32)
    found = functional.embedding(index, parts[2]).reshape(-1)
    del index
    scaled = found.view(scales.numel(), BLOCK) * scales.unsqueeze(1)
    del found, scales
    return scaled.reshape(-1)[: shape[0] * shape[1]].view(shape)


class FrozenProduct(torch.autograd.Function):
    """A linear map by a stored weight, with a gradient for its input only."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shape: tuple[int, int], *parts: torch.Tensor) -> Any:
        """Of x (..., inputs) times the weight's transpose."""
        ctx.save_for_backward(*parts)
        ctx.shape = shape
        weight = weight_of(parts, shape, x.dtype)
        return functional.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """The input's gradient, by the weight dequantized again."""
        (gradient,) = gradients
        parts = ctx.saved_tensors
        weight = weight_of(parts, ctx.shape, gradient.dtype)
        return (torch.matmul(gradient, weight), None, *[None] * len(parts))


class QuantizedLora(nn.Module):
    """Takes the place of an ``nn.Linear`` without bias."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: int, *, nested: bool) -> None:
        super().__init__()
        self.shape = (linear.out_features, linear.in_features)
        parts = stored(linear.weight.numel(), linear.weight.dtype, nested=nested)
        self.names = [f"part{number}" for number in range(len(parts))]
        for name, part in zip(self.names, parts, strict=True):
            self.register_buffer(name, part)
        self.into = nn.Parameter(torch.zeros(rank, linear.in_features, dtype=torch.float32))
        self.out = nn.Parameter(torch.zeros(linear.out_features, rank, dtype=torch.float32))
        self.dropout = nn.Dropout(0.0)
        self.scaling = alpha / rank

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The frozen product plus the adapter's."""
        base = FrozenProduct.apply(x, self.shape, *(getattr(self, name) for name in self.names))
        inner = self.dropout(x).to(self.into.dtype)
        adapter = functional.linear(functional.linear(inner, self.into), self.out)
        return base + adapter.to(base.dtype) * self.scaling


def quantize(model: nn.Module, rank: int, alpha: int, *, nested: bool) -> None:
    """Freeze the model and put a ``QuantizedLora`` for each linear layer but the one that gives the
    logits.
    """
    model.requires_grad_(requires_grad=False)
    logits = model.get_output_embeddings()
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and module is not logits:
            parent, _, child = name.rpartition(".")
            owner = model.get_submodule(parent) if parent else model
            setattr(owner, child, QuantizedLora(module, rank, alpha, nested=nested))
