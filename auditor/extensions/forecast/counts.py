"""FLOPs and bytes of an operator's call, from its shapes, strides and types.

Bytes are what must move between memory and processors at least: each input as memory holds it, once,
and each output once; operators that read their input twice (statistics, then values) say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from auditor.extensions.forecast import elementwise, kinds
from auditor.extensions.forecast.calls import Call, Tensor
from auditor.extensions.forecast.counted import (
    FP32,
    TF32,
    VECTOR,
    Counts,
    arithmetic_of,
    read,
    written,
)

# -- convolution -----------------------------------------------------------------------------------
# Convolutions and their backwards.


_PLACES = {
    "convolution": (3, 4, 5),
    "_convolution": (3, 4, 5),
    "convolution_overrideable": (3, 4, 5),
    "conv1d": (3, 4, 5),
    "conv2d": (3, 4, 5),
    "conv3d": (3, 4, 5),
    "cudnn_convolution": (3, 2, 4),
    "miopen_convolution": (4, 3, 5),
    "miopen_depthwise_convolution": (4, 3, 5),
    "_conv_depthwise2d": (4, 5, 6),
    "conv_depthwise3d": (4, 5, 6),
    "cudnn_convolution_relu": (3, 4, 5),
}
"""Where an operator has stride, padding and dilation (native_functions.yaml)."""
_WINOGRAD = 2.25
"""How many times fewer multiplications F(2x2, 3x3) needs (arXiv 1509.09308). cuDNN takes it for
3x3 windows of stride 1 in fp32.
"""
_TILE = 32
"""Channels that a tile of a convolution's kernel takes at least."""
_MASK = 10  # of convolution_backward: which gradients are wanted


def convolution(call: Call) -> Counts | None:
    """A forward convolution. Where neither its output nor its strides are known, it counts as one
    of stride 1, in a class that nothing is promised of.
    """
    tensors = [tensor for tensor in call.tensors if len(tensor.shape) >= 3]
    if len(tensors) < 2 or len(tensors[0].shape) != len(tensors[1].shape):
        return None
    image, weight = tensors[:2]
    output = _output(call, image, weight)
    kind = kinds.CONV
    if output is None:
        kind = kinds.CONV_UNKNOWN
        output = (image.shape[0], weight.shape[0], *image.shape[2:])
    wide = image.shape if _transposed(call) else output
    size = read((image, weight)) + math.prod(output) * image.item_bytes
    flops = 2.0 * math.prod(wide) * math.prod(weight.shape[1:])
    return Counts(
        kind,
        flops=flops,
        vector_flops=_fewest(flops, image.shape, output, weight),
        tile_share=_tile_share(weight),
        bytes=size,
        arithmetic=_arithmetic(image, weight),
    )


def convolution_backward(call: Call) -> Counts | None:
    """Gradients of a convolution's input and weight, those of both that are wanted."""
    tensors = [tensor for tensor in call.tensors if len(tensor.shape) >= 3]
    if call.operator.endswith(("backward_input", "backward_weight")):
        return _one_gradient(call, tensors)
    if len(tensors) < 3:
        return None
    first, second, weight = tensors[:3]
    old = call.operator in {"cudnn_convolution_backward", "miopen_convolution_backward"}
    gradient, image = (second, first) if old else (first, second)
    wide = image.shape if _transposed(call, 7) else gradient.shape
    mask = call.value(_MASK)
    wanted = sum(bool(each) for each in mask[:2]) if isinstance(mask, list) else 2
    products = max(wanted, 1)
    results = read((gradient,)) + read((image, weight)) * products
    flops = 2.0 * math.prod(wide) * math.prod(weight.shape[1:]) * products
    return Counts(
        kinds.CONV_BACKWARD,
        flops=flops,
        vector_flops=_fewest(flops, image.shape, gradient.shape, weight),
        tile_share=_tile_share(weight),
        bytes=results,
        kernels=products,
        arithmetic=_arithmetic(image, weight),
    )


def _one_gradient(call: Call, tensors: Sequence[Tensor]) -> Counts | None:
    """The operators of torch 1.x, which compute one gradient each: the other side's shape is their
    output's.
    """
    if len(tensors) < 2 or not call.outputs:
        return None
    gradient, other = tensors[:2]
    made = call.outputs[0]
    weight = other if call.operator.endswith("input") else made
    flops = 2.0 * gradient.elements * math.prod(weight.shape[1:])
    image = made if call.operator.endswith("input") else other
    return Counts(
        kinds.CONV_BACKWARD,
        flops=flops,
        vector_flops=_fewest(flops, image.shape, gradient.shape, weight),
        tile_share=_tile_share(weight),
        bytes=read((gradient, other)) + made.size_bytes,
        arithmetic=arithmetic_of(gradient),
    )


def _fewest(
    flops: float, image: Sequence[int], output: Sequence[int], weight: Tensor
) -> float | None:
    same = tuple(image[2:]) == tuple(output[2:])
    return flops / _WINOGRAD if same and weight.shape[2:] == (3, 3) else None


def _tile_share(weight: Tensor) -> float:
    """Of the product that a convolution is: channels made, and channels taken times the window."""
    made, taken = weight.shape[0], math.prod(weight.shape[1:])
    return math.prod(size / (math.ceil(size / _TILE) * _TILE) for size in (made, taken) if size)


def _arithmetic(image: Tensor, weight: Tensor) -> str:
    """Tensor cores where channels are summed; depthwise kernels multiply without them."""
    depthwise = weight.shape[1] == 1 and image.shape[1] > 1
    return VECTOR if depthwise else arithmetic_of(image)


def _transposed(call: Call, place: int = 6) -> bool:
    if "transpose" in call.operator:
        return True
    return call.operator in {
        "convolution",
        "_convolution",
        "convolution_overrideable",
        "convolution_backward",
    } and bool(call.value(place))


def _output(call: Call, image: Tensor, weight: Tensor) -> tuple[int, ...] | None:
    if call.outputs:
        return call.outputs[0].shape
    kernel = weight.shape[2:]
    places = _PLACES.get(call.operator)
    if places is None or _transposed(call):
        return None
    found = [call.integers(place) for place in places]
    stride, padding, dilation = (_each(value, len(kernel)) for value in found)
    if stride is None or padding is None or dilation is None:
        return None
    spatial = (
        max(1, (size + 2 * pad - step * (window - 1) - 1) // jump + 1)
        for size, pad, step, window, jump in zip(
            image.shape[2:], padding, dilation, kernel, stride, strict=True
        )
    )
    return (image.shape[0], weight.shape[0], *spatial)


def _each(value: tuple[int, ...] | None, number: int) -> tuple[int, ...] | None:
    """One value for each dimension; torch takes one for all."""
    if not value:
        return None
    return value * number if len(value) == 1 else value if len(value) == number else None


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
