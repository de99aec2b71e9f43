"""Attention with dropout as CUDA keeps it, with the host's numbers.

The CPU's fused kernel knows no dropout, and its composite keeps three matrices of all pairs of
tokens; CUDA's fused kernels keep the result and one number for each row
(``_efficient_attention_forward`` in aten/src/ATen/native/transformers/cuda/attention.cu). The memory
is theirs here, the values are the composite's, computed again where the gradient is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from auditor.capture.instruments.torch_private.autograd import forward_level
from auditor.capture.instruments.torch_private.dispatch import (
    DisableTorchFunctionSubclass,
    DispatchKey,
    DispatchKeySet,
    ExcludeDispatchKeys,
    is_functorch_wrapped,
)
from auditor.capture.shadow.registering import overload, register

Tensor = torch.Tensor

ALIGNED: Final = {torch.float32: 4, torch.float16: 8, torch.bfloat16: 8}
"""What a head's width is a multiple of (sdp_utils.cpp, ``check_head_dim_size_mem_efficient``)."""

ROWS: Final = 32
"""The rows' numbers are filled up to a multiple of this (attention.cu, ``kAlignLSE``)."""

_MATH: Final = overload("_scaled_dot_product_attention_math")
_FUSED: Final = overload("_scaled_dot_product_efficient_attention")


def install(library: Any) -> None:
    """Let attention of shadows with dropout take the fused kernel's way where CUDA does."""
    operator = overload("scaled_dot_product_attention")
    if operator is None or _MATH is None or _FUSED is None:
        return

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        *more: Any,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        p, causal = _given(more)
        given = [query, key, value]
        if not p or enable_gqa or not _is_fused(given, attn_mask, causal=causal):
            grouped = {"enable_gqa": True} if enable_gqa else {}
            return operator.decompose(  # type: ignore[no-any-return]
                query, key, value, attn_mask, p, causal, scale=scale, **grouped
            )
        with DisableTorchFunctionSubclass():
            bias = attn_mask
            if bias is not None and bias.dtype is torch.bool:
                bias = torch.zeros_like(bias, dtype=query.dtype)
                bias.masked_fill_(attn_mask.logical_not(), float("-inf"))  # type: ignore[union-attr]
            if bias is not None:
                bias = bias.expand(*query.shape[:-1], key.shape[-2])
            graph = torch.is_grad_enabled() and any(each.requires_grad for each in given)
            results = _FUSED(query, key, value, bias, graph, p, causal, scale=scale)
            return results[0]  # type: ignore[no-any-return]

    register(library, "scaled_dot_product_attention", attention, "AutogradCUDA")


def _is_fused(given: list[Tensor], mask: Tensor | None, *, causal: bool) -> bool:
    """Whether CUDA takes a fused kernel (sdp_utils.cpp)."""
    query, key, value = given
    backends = torch.backends.cuda
    return (
        (backends.mem_efficient_sdp_enabled() or backends.flash_sdp_enabled())
        and forward_level() < 0
        and not any(is_functorch_wrapped(each) for each in given)
        and all(each.dim() == 4 and each.numel() and each.stride(-1) == 1 for each in given)
        and query.dtype in ALIGNED
        and query.dtype == key.dtype == value.dtype
        and query.shape[:2] == key.shape[:2] == value.shape[:2]
        and not any(each.shape[-1] % ALIGNED[query.dtype] for each in given)
        and (mask is None or not (causal or mask.requires_grad))
    )


def _given(more: tuple[Any, ...]) -> tuple[float, bool]:
    return (more[0] if more else 0.0), bool(more[1:] and more[1])


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    rows: Any,
    *more: Any,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Result, a number for each row, and in the seed's place the generator's state."""
    state = torch.get_rng_state()
    result = _MATH(query, key, value, bias, *_given(more), scale=scale)[0]
    long = -(-query.shape[2] // ROWS) * ROWS if rows else 0
    numbers = query.new_empty((*query.shape[:2], long), dtype=torch.float32)
    return result.transpose(1, 2).contiguous().transpose(1, 2), numbers, state, state.new_empty(())


def _backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    *more: Any,
    **scale: Any,
) -> tuple[Tensor | None, ...]:
    _, _, state, _, p, _, *causal = more
    before = torch.get_rng_state()
    try:
        torch.set_rng_state(state)
        # below a watch over operators its key would be back without it
        hosts = ExcludeDispatchKeys(DispatchKeySet(DispatchKey.Python))
        with torch.overrides.enable_reentrant_dispatch(), hosts, torch.enable_grad():
            inputs = [each.detach().requires_grad_() for each in (query, key, value)]
            again = _MATH(*inputs, bias, p, bool(causal and causal[0]), **scale)[0]
            found = torch.autograd.grad(again, inputs, grad)
    finally:
        torch.set_rng_state(before)
    return (*found, None)


PLAYED: Final[dict[str, Callable[..., Any]]] = {
    "_scaled_dot_product_efficient_attention": _forward,
    "_scaled_dot_product_efficient_attention_backward": _backward,
}
"""Operator -> what computes it on the host tensors behind the shadows."""
