"""Dropout as CUDA keeps it, with the host's numbers.

CUDA's fused kernel saves one byte for each element (aten/src/ATen/native/Dropout.cpp,
``is_fused_kernel_acceptable``; native/cuda/Dropout.cu), the host's composite a mask of the input's
type. The values here are the composite's, bit for bit: the CPU's own ``native_dropout`` rounds
otherwise for one probability in seven. Gradients with a graph (``create_graph``) take torch's
formula over the mask, and may differ in the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from auditor.capture.instruments.torch_private.autograd import forward_level
from auditor.capture.instruments.torch_private.dispatch import (
    DisableTorchFunctionSubclass,
    is_functorch_wrapped,
)
from auditor.capture.shadow.registering import register

Tensor = torch.Tensor


def install(library: Any) -> None:
    """Let ``dropout`` of a shadow take the fused kernel's way where CUDA does."""
    register(library, "dropout", _dropout, "AutogradCUDA")


def _dropout(inputs: Tensor, p: float, train: bool) -> Tensor:
    if not train or p == 0 or not inputs.numel():
        return inputs
    if p == 1:
        return inputs * torch.zeros((), dtype=inputs.dtype, device=inputs.device)
    if is_functorch_wrapped(inputs) or forward_level() >= 0:
        return inputs * _kept(inputs, p).div_(1 - p)
    with DisableTorchFunctionSubclass():
        return torch.native_dropout(inputs, p, train)[0]


def _kept(inputs: Tensor, p: float) -> Tensor:
    return torch.empty_like(inputs).bernoulli_(1 - p)


def _forward(inputs: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or not 0 < p < 1:
        return torch.native_dropout(inputs, p, train)
    kept = _kept(inputs, p)
    mask = kept.bool()
    return inputs * kept.div_(1 - p), mask


def _backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    if not scale:
        return grad * mask * scale
    return grad * mask.to(grad.dtype).div_(1 / scale)


PLAYED: Final[dict[str, Callable[..., Any]]] = {
    "native_dropout": _forward,
    "native_dropout_backward": _backward,
}
"""Operator -> what computes it on the host tensors behind the shadows."""
