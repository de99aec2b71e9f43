"""Convolutions and their backwards."""

from __future__ import annotations

import math
from collections.abc import Sequence

from auditor.forecast import kinds
from auditor.forecast.calls import Call, Tensor
from auditor.forecast.counted import VECTOR, Counts, arithmetic_of, read

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
