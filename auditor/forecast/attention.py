"""Fused attention: two products in each of a head's passes."""

from __future__ import annotations

from auditor.forecast import kinds
from auditor.forecast.calls import Call, Tensor
from auditor.forecast.counted import Counts, arithmetic_of, read, written

BACKWARD_PRODUCTS = 2.5
"""The backward computes five products where the forward computes two."""

_CAUSAL = {
    "scaled_dot_product_attention": 5,
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 7,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
    "_flash_attention_forward": 8,
    "_efficient_attention_forward": 9,
    "_cudnn_attention_forward": 9,
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention_backward": 14,
    "_flash_attention_backward": 11,
    "_efficient_attention_backward": 14,
    "_cudnn_attention_backward": 14,
}
"""Where each operator is told that it is causal (native_functions.yaml; true, or a mask's number)."""


def attention(call: Call) -> Counts | None:
    """One call; None for sequences of several lengths in one tensor, whose lengths no shape has."""
    backward = "backward" in call.operator
    four = [tensor for tensor in call.tensors if len(tensor.shape) == 4]
    if len(four) < (4 if backward else 3):
        return None
    query, key, value = four[1:4] if backward else four[:3]
    batch, heads, length, keys = _sizes(call.operator, query, key)
    flops = 2.0 * batch * heads * length * keys * (query.shape[-1] + value.shape[-1])
    if call.value(_CAUSAL.get(call.operator, -1)) in {True, 2} and length == keys:
        flops /= 2
    size = read(four)
    if backward:
        size += written((query, key, value))
    else:
        size += batch * heads * length * value.shape[-1] * query.item_bytes
    return Counts(
        kinds.ATTENTION_BACKWARD if backward else kinds.ATTENTION,
        flops=flops * (BACKWARD_PRODUCTS if backward else 1.0),
        bytes=size,
        kernels=3 if backward else 1,
        arithmetic=arithmetic_of(query),
    )


def _sizes(operator: str, query: Tensor, key: Tensor) -> tuple[int, int, int, int]:
    """Batch, heads, queries and keys: heads come before the sequence in the operators of
    ``scaled_dot_product_attention``, after it in the kernels' own.
    """
    if "dot_product" in operator or "cudnn" in operator:
        return query.shape[0], query.shape[1], query.shape[2], key.shape[2]
    return query.shape[0], query.shape[2], query.shape[1], key.shape[1]
