"""FLOPs and bytes of an operator's call, from its shapes, strides and types.

Bytes are what must move between memory and processors at least: each input as memory holds it, and
each output, once. What most operators of a class read twice (norms do) is left to the fitted share
of the bandwidth.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes of an element by torch's name of its type."""


@dataclass(frozen=True)
class Tensor:
    """Shape, type and, where known, strides (in elements) of a tensor."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    strides: tuple[int, ...] | None = None
    on_host: bool = False

    @property
    def elements(self) -> int:
        """Elements as the shape counts them."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element; 4 where the type is not known."""
        return ITEM_BYTES.get(self.dtype, 1 if self.dtype.startswith("float8") else 4)

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements that the shape counts: what writing it moves."""
        return self.elements * self.item_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes that memory holds of it: a dimension of stride 0 (``expand``) counts once. What
        reading it moves at least.
        """
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.size_bytes
        held = (
            size for size, step in zip(self.shape, self.strides, strict=True) if step or not size
        )
        return math.prod(held) * self.item_bytes


Argument = Tensor | tuple[Tensor, ...] | None


@dataclass(frozen=True)
class Call:
    """One call of an operator, or several of the same arguments."""

    name: str
    """With its namespace, as the profiler writes it: ``aten::addmm``. An overload may follow."""
    inputs: tuple[Argument, ...] = ()
    """By position: a tensor, a list of tensors, or None for what is neither."""
    values: tuple[object, ...] = ()
    """By the same positions: numbers, booleans and lists of them; None for what is not known."""
    outputs: tuple[Tensor, ...] = ()
    """Empty where the operator writes its first argument."""
    times: int = 1

    @property
    def operator(self) -> str:
        """The name alone: ``addmm`` of ``aten::addmm.default``."""
        return self.name.rpartition("::")[2].partition(".")[0]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Tensor arguments, those in lists left out."""
        return tuple(each for each in self.inputs if isinstance(each, Tensor))

    @property
    def lists(self) -> tuple[tuple[Tensor, ...], ...]:
        """Arguments that are lists of tensors."""
        return tuple(each for each in self.inputs if isinstance(each, tuple))

    @property
    def everything(self) -> tuple[Tensor, ...]:
        """All tensors that go in, those in lists among them."""
        return self.tensors + tuple(tensor for each in self.lists for tensor in each)

    def value(self, position: int) -> object:
        """The value at a position; None where it is not known."""
        return self.values[position] if position < len(self.values) else None


# -- classes by name -------------------------------------------------------------------------------

PRODUCT: Final = "matrix products"
ATTENTION: Final = "attention"
CONV: Final = "convolutions"
MEMORY: Final = "passes over memory"
NOTHING: Final = "nothing"
COLLECTIVE: Final = "collective"
UNKNOWN: Final = "unknown"
"""Custom and compiled kernels, and operators whose work is not in their shapes."""

_PRODUCTS = frozenset(
    """
    mm addmm addmm_ _addmm_activation bmm baddbmm baddbmm_ linear matmul mv addmv addmv_ dot vdot
    _scaled_mm _int_mm
    """.split()
)
_ADDED_TO = frozenset(
    {"addmm", "addmm_", "_addmm_activation", "baddbmm", "baddbmm_", "addmv", "addmv_"}
)
"""Products whose factors are their second and third argument: the first is added."""
_NO_KERNEL = frozenset(
    """
    view _unsafe_view reshape _reshape_alias expand expand_as t transpose permute slice select
    narrow unsqueeze squeeze as_strided detach detach_ alias split split_with_sizes chunk
    tensor_split unbind unflatten flatten movedim swapaxes mT mH T adjoint numpy_T view_as
    view_as_real view_as_complex real imag diagonal unfold_view empty empty_like empty_strided
    new_empty new_empty_strided _empty_affine_quantized resize_ resize_as_ set_ lift_fresh lift
    is_same_size size stride storage_offset numel requires_grad_ _version record_stream
    _local_scalar_dense item result_type is_pinned pin_memory set_data
    """.split()
)
"""Operators that start no kernel (``_local_scalar_dense`` copies a few bytes to the host)."""
_COLLECTIVES = re.compile(r"^(nccl|c10d|_c10d_functional|c10d_functional|rccl|record_param_comms)")
_UNMODELLED = re.compile(
    r"linalg|cholesky|fft|_ctc|rnn|lstm|gru|sparse|triangular|cdist|qr$|svd|_grouped_mm"
)
_COMPILED = re.compile(r"^(triton_|CompiledFunction|Torch-Compiled|## Call Compiled|inductor::)")


@cache
def kind_of(name: str) -> str:
    """The class of ``aten::addmm``. What an operator of another library starts is not known."""
    space, _, rest = name.rpartition("::")
    operator = rest.partition(".")[0]
    if _COLLECTIVES.match(name) or _COLLECTIVES.match(operator):
        return COLLECTIVE
    if space not in {"aten", "prims", ""} or _COMPILED.match(name):
        return UNKNOWN
    if operator in _NO_KERNEL:
        return NOTHING
    if operator in _PRODUCTS:
        return PRODUCT
    if "attention" in operator:
        return ATTENTION
    if "conv" in operator and "convert" not in operator:
        return CONV
    vector_norm = operator == "linalg_vector_norm"
    return UNKNOWN if _UNMODELLED.search(operator) and not vector_norm else MEMORY


# -- counts ----------------------------------------------------------------------------------------

HALF, TF32, FP32, FP64, FP8 = "16-bit", "tf32", "fp32", "fp64", "8-bit"
VECTOR = "vector"
"""Of products that no tensor core computes, whatever their type."""


@dataclass(frozen=True)
class Counts:
    """FLOPs, bytes and kernels of a call."""

    kind: str
    flops: float = 0.0
    bytes: float = 0.0
    kernels: int = 1
    """How many kernels torch starts for it, as far as that follows from shapes."""
    arithmetic: str = FP32
    """What its FLOPs are computed in."""


def count(call: Call, *, tf32_matmul: bool = False, tf32_conv: bool = True) -> Counts:
    """What a call costs. ``tf32_matmul`` and ``tf32_conv`` are
    ``torch.backends.cuda.matmul.allow_tf32`` and ``torch.backends.cudnn.allow_tf32``, with torch's
    defaults.
    """
    kind = kind_of(call.name)
    tensors = call.everything + call.outputs
    if kind in {NOTHING, COLLECTIVE, UNKNOWN}:
        return Counts(kind, kernels=0)
    if _copies_to_or_from_host(call) or (tensors and all(each.on_host for each in tensors)):
        return Counts(NOTHING, kernels=0)
    if kind == MEMORY:
        return _lists(call) if call.lists and not call.outputs else _memory(call)
    counted = _COUNTED[kind](call)
    if counted is None:
        return Counts(UNKNOWN, kernels=0)
    if counted.arithmetic == FP32 and (tf32_conv if kind == CONV else tf32_matmul):
        return replace(counted, arithmetic=TF32)
    return counted


def read(tensors: Iterable[Tensor]) -> float:
    """Bytes that reading tensors of the device moves."""
    return float(sum(tensor.stored_bytes for tensor in tensors if not tensor.on_host))


def written(tensors: Iterable[Tensor]) -> float:
    """Bytes that writing tensors moves."""
    return float(sum(tensor.size_bytes for tensor in tensors))


def _arithmetic(tensor: Tensor) -> str:
    """What products of a tensor's type are computed in, TF32 left aside."""
    if tensor.dtype in {"float16", "bfloat16"}:
        return HALF
    if tensor.dtype == "float64":
        return FP64
    return FP8 if tensor.dtype.startswith("float8") else FP32


def _product(call: Call) -> Counts | None:
    """A matrix product; None where its factors or its result are not there."""
    first = 1 if call.operator in _ADDED_TO else 0
    tensors = call.tensors
    made = call.outputs[:1] or (tensors[:1] if call.operator.endswith("_") else ())
    if len(tensors) < first + 2 or not made or not tensors[first].shape:
        return None
    left = tensors[first]
    return Counts(
        PRODUCT,
        flops=2.0 * made[0].elements * left.shape[-1],
        bytes=read(tensors) + written(made),
        arithmetic=_arithmetic(left),
    )


_BACKWARD_PRODUCTS = 2.5
"""The backward of attention computes five products where the forward computes two."""
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


def _attention(call: Call) -> Counts | None:
    """Fused attention: two products in each of a head's passes. None for sequences of several
    lengths in one tensor, whose lengths no shape has.
    """
    backward = "backward" in call.operator
    four = [tensor for tensor in call.tensors if len(tensor.shape) == 4]
    if len(four) < (4 if backward else 3):
        return None
    query, key, value = four[1:4] if backward else four[:3]
    # Heads come before the sequence in the operators of scaled_dot_product_attention, and after it
    # in the kernels' own.
    heads, length = (1, 2) if "dot_product" in call.operator or "cudnn" in call.operator else (2, 1)
    queries, keys = query.shape[length], key.shape[length]
    rows = query.shape[0] * query.shape[heads] * queries
    flops = 2.0 * rows * keys * (query.shape[-1] + value.shape[-1])
    if call.value(_CAUSAL.get(call.operator, -1)) in {True, 2} and queries == keys:
        flops /= 2
    made = written((query, key, value)) if backward else rows * value.shape[-1] * query.item_bytes
    return Counts(
        ATTENTION,
        flops=flops * (_BACKWARD_PRODUCTS if backward else 1.0),
        bytes=read(four) + made,
        arithmetic=_arithmetic(query),
    )


_TRANSPOSED, _TRANSPOSED_BACKWARD, _MASK = 6, 7, 10
"""Where ``convolution`` and its backward are told that they are transposed, and the backward which
gradients are wanted (native_functions.yaml).
"""


def _convolution(call: Call) -> Counts | None:
    """A convolution, or those gradients of its input and weight that are wanted: as many products
    of the same FLOPs.
    """
    tensors = [tensor for tensor in call.tensors if len(tensor.shape) >= 3]
    backward = "backward" in call.operator
    made = tensors[:1] if backward else call.outputs[:1]
    image, weight = (*(tensors[1:3] if backward else tensors[:2]), None, None)[:2]
    if image is None or weight is None or not made:
        return None
    place = _TRANSPOSED_BACKWARD if backward else _TRANSPOSED
    turned = "transpose" in call.operator or call.value(place) is True
    wide = image if turned else made[0]
    mask = call.value(_MASK) if backward else None
    products = max(sum(map(bool, mask[:2])), 1) if isinstance(mask, list) else 1 + backward
    depthwise = weight.shape[1] == 1 and image.shape[1] > 1
    return Counts(
        CONV,
        flops=2.0 * wide.elements * math.prod(weight.shape[1:]) * products,
        bytes=read((image, weight)) * products + written(made),
        kernels=products,
        arithmetic=VECTOR if depthwise else _arithmetic(image),
    )


_COUNTED: dict[str, Callable[[Call], Counts | None]] = {
    PRODUCT: _product,
    ATTENTION: _attention,
    CONV: _convolution,
}


_WRITES_ONLY = frozenset(
    """
    fill_ zero_ copy_ random_ normal_ uniform_ bernoulli_ exponential_ _foreach_zero_ _foreach_copy_
    """.split()
)
"""Operators that do not read what they write."""
_LOOKUPS = frozenset({"embedding", "index_select", "gather", "index", "take", "take_along_dim"})
"""Operators that read as much of their first argument as they write, and an index."""


def _memory(call: Call) -> Counts:
    """All inputs read, the outputs written."""
    tensors = call.everything
    made = call.outputs or tensors[:1]
    if call.operator in _LOOKUPS:
        index = (each for each in tensors[1:] if each.dtype in {"int64", "int32", "bool"})
        return Counts(MEMORY, bytes=2 * written(made) + read(index))
    given = tensors[1:] if call.operator in _WRITES_ONLY else tensors
    return Counts(MEMORY, bytes=read(given) * _passes(call) + written(made))


_ROW_IN_REGISTERS = 1024
"""Elements of a row that a softmax keeps in registers (PersistentSoftmax.cuh)."""
_VECTOR_BYTES = 16
"""Rows that do not end at these are read without vector loads, and not kept in shared memory."""


def _passes(call: Call) -> int:
    """How often inputs are read: by a softmax over long rows that are not aligned for the maximum,
    the sum and the result.
    """
    if "softmax" not in call.operator or not call.tensors or not call.tensors[0].shape:
        return 1
    row, item = call.tensors[0].shape[-1], call.tensors[0].item_bytes
    if row <= _ROW_IN_REGISTERS or row * item % _VECTOR_BYTES == 0:
        return 1
    return 2 if "backward" in call.operator else 3


def _copies_to_or_from_host(call: Call) -> bool:
    """A copy engine's work, which no kernel does."""
    tensors = call.tensors
    if call.operator not in {"copy_", "_to_copy", "to", "copy"} or not tensors:
        return False
    source = tensors[1] if call.operator == "copy_" and len(tensors) > 1 else tensors[0]
    target = (*call.outputs, *tensors)[0]
    return target.on_host != source.on_host


_LAUNCH_TENSORS, _LAUNCH_CHUNKS, _CHUNK_ELEMENTS = 48, 320, 65_536
"""What one launch of MultiTensorApply.cuh takes: tensors (of three lists; 110 of one, 30 of five),
and chunks."""


def _lists(call: Call) -> Counts:
    """One operator over lists of tensors in place (``_foreach_add_``); a fused optimizer writes all
    of its lists but the second, the gradients.
    """
    lists: Sequence[tuple[Tensor, ...]] = [each for each in call.lists if each]
    if not lists or lists[0][0].on_host:
        return Counts(NOTHING, kernels=0)
    given = lists[1:] if call.operator in _WRITES_ONLY else lists
    fused = call.operator.startswith("_fused_")
    results = [lists[0], *lists[2:]] if fused else lists[:1]
    chunks = sum(math.ceil(tensor.elements / _CHUNK_ELEMENTS) for tensor in lists[0])
    launches = max(len(lists[0]) / _LAUNCH_TENSORS, chunks / _LAUNCH_CHUNKS)
    return Counts(
        MEMORY,
        bytes=sum(map(read, given)) + sum(map(written, results)),
        kernels=max(1, math.ceil(launches)),
    )
