"""FLOPs and bytes of an operator's call, from its shapes, strides and types.

Bytes are what must move between memory and processors at least: each input as memory holds it, once,
and each output once; operators that read their input twice (statistics, then values) say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from auditor.forecast import elementwise, kinds
from auditor.forecast.calls import Call, Tensor
from auditor.forecast.convolution import convolution, convolution_backward
from auditor.forecast.counted import FP32, TF32, Counts, arithmetic_of, read, written

# -- attention -------------------------------------------------------------------------------------
# Fused attention: two products in each of a head's passes.


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


# -- counts ----------------------------------------------------------------------------------------


# -- products --------------------------------------------------------------------------------------
# Matrix products: batch, rows, columns and depth of a call.


_SECOND = frozenset(
    {"addmm", "addmm_", "_addmm_activation", "baddbmm", "baddbmm_", "addmv", "addmv_"}
)
"""Operators whose factors are their second and third argument: the first is added."""


def product(call: Call) -> Counts | None:
    """A matrix product; None where its factors are not there or do not fit."""
    first = 1 if call.operator in _SECOND else 0
    factors = call.inputs[first : first + 2]
    if len(factors) < 2:
        return None
    left, right = factors
    if not isinstance(left, Tensor) or not isinstance(right, Tensor):
        return None
    sizes = _linear(left, right) if call.operator == "linear" else _matmul(left, right)
    if sizes is None:
        return None
    batch, rows, columns, depth = sizes
    item = call.outputs[0].item_bytes if call.outputs else left.item_bytes
    added = read(each for each in call.tensors if each is not left and each is not right)
    size = read((left, right)) + batch * rows * columns * item
    if call.operator in _SECOND or call.operator == "linear":
        size += min(added, batch * rows * columns * item)
    return Counts(
        kinds.MATMUL,
        flops=2.0 * batch * rows * columns * depth,
        bytes=size,
        arithmetic=arithmetic_of(left),
        product=sizes,
    )


def _linear(left: Tensor, right: Tensor) -> tuple[int, int, int, int] | None:
    if not left.shape or not right.shape or left.shape[-1] != right.shape[-1]:
        return None
    columns = right.shape[0] if len(right.shape) > 1 else 1
    return 1, math.prod(left.shape[:-1]), columns, left.shape[-1]


def _matmul(left: Tensor, right: Tensor) -> tuple[int, int, int, int] | None:
    if not left.shape or not right.shape:
        return None
    depth = right.shape[-2] if len(right.shape) > 1 else right.shape[0]
    if left.shape[-1] != depth:
        return None
    rows = left.shape[-2] if len(left.shape) > 1 else 1
    columns = right.shape[-1] if len(right.shape) > 1 else 1
    ahead = left.shape[:-2]
    if len(right.shape) <= 2:  # torch folds the batch into the rows
        return 1, math.prod(ahead) * rows, columns, depth
    batch = max(math.prod(ahead), math.prod(right.shape[:-2]))
    return batch, rows, columns, depth


# -- counts ----------------------------------------------------------------------------------------


_BY_KIND: dict[str, Callable[[Call], Counts | None]] = {
    kinds.MATMUL: product,
    kinds.CONV: convolution,
    kinds.CONV_BACKWARD: convolution_backward,
    kinds.ATTENTION: attention,
    kinds.ATTENTION_BACKWARD: attention,
    kinds.NORM: elementwise.norm,
    kinds.NORM_BACKWARD: elementwise.norm,
    kinds.BATCH_NORM: elementwise.batch_norm,
    kinds.BATCH_NORM_BACKWARD: elementwise.batch_norm,
    kinds.SOFTMAX: elementwise.softmax,
    kinds.REDUCTION: elementwise.reduction,
    kinds.POINTWISE: elementwise.pointwise,
    kinds.COPY: elementwise.copy,
    kinds.FOREACH: elementwise.foreach,
    kinds.POOLING: elementwise.pooling,
    kinds.LOOKUP: elementwise.lookup,
    kinds.CAT: elementwise.cat,
    kinds.IRREGULAR: elementwise.irregular,
}
_CONVOLUTIONS = frozenset({kinds.CONV, kinds.CONV_BACKWARD, kinds.CONV_UNKNOWN})
_PRODUCTS = frozenset({kinds.MATMUL})


def count(call: Call, *, tf32_matmul: bool = False, tf32_conv: bool = True) -> Counts | None:
    """What a call costs; None where its shapes do not tell.

    ``tf32_matmul`` and ``tf32_conv`` are ``torch.backends.cuda.matmul.allow_tf32`` and
    ``torch.backends.cudnn.allow_tf32``, with torch's defaults.
    """
    kind = kinds.kind_of(call.name)
    if kind in {kinds.NOTHING, kinds.COLLECTIVE, kinds.CUSTOM}:
        return Counts(kind, kernels=0)
    tensors = call.everything + call.outputs
    if tensors and all(tensor.on_host for tensor in tensors):
        return Counts(kinds.NOTHING, kernels=0)
    counted = _BY_KIND[kind](call)
    if counted is None or call.arithmetic is not None:
        return counted and replace(counted, arithmetic=call.arithmetic or FP32)
    kind = counted.kind
    if counted.arithmetic == FP32 and (
        (tf32_conv and kind in _CONVOLUTIONS) or (tf32_matmul and kind in _PRODUCTS)
    ):
        return replace(counted, arithmetic=TF32)
    return counted
