"""What torch's own functions make of storages: each looks at all of its arguments, and stands for
the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from auditor.evidence import pickled_names
from auditor.extensions.checkpoints.contents import COUNT, PACKED, Malformed, Storage, Stored
from auditor.extensions.checkpoints.described import (
    DEVICE_NUMBERS,
    demand,
    demand_bits,
    demand_gradient,
    dtype_of,
    is_count,
    is_stored,
    is_tensor,
    numbers_in,
    place_of,
    shape_of,
    sizes_of,
    view,
    without_gaps,
)
from auditor.extensions.checkpoints.marks import (
    PARAMETER,
    Composite,
    Foreign,
    Look,
    Meta,
    Name,
    Shell,
    Value,
    attributes,
)

# -- indexed ---------------------------------------------------------------------------------------
# Sparse and nested tensors: some of their numbers say where others are, and must point inside.
# Torch does not look, and crashes later.

COO = "torch.sparse_coo"
BY_ROW = ("torch.sparse_csr", "torch.sparse_bsr")
BLOCKED = ("torch.sparse_bsr", "torch.sparse_bsc")
COMPRESSED = (*BY_ROW, "torch.sparse_csc", "torch.sparse_bsc")
LAYOUTS = frozenset({"torch.strided", "torch.jagged", "torch._mkldnn", COO, *COMPRESSED})

NESTED = "torch._utils._rebuild_nested_tensor"


def sparse(layout: Any, parts: Any) -> Composite:
    """A sparse tensor of any layout. Raises :class:`Malformed`."""
    kind = layout.kind if isinstance(layout, Value) else ""
    demand(isinstance(parts, tuple) and kind in (COO, *COMPRESSED))
    return _coo(*parts) if kind == COO else _compressed(kind, *parts)


def _coo(indices: Any, values: Any, size: Any, coalesced: Any = None) -> Composite:
    shape = shape_of(size)
    demand(is_stored(indices, values))
    demand(indices.dtype == "int64" and len(indices.shape) == 2 and values.shape)
    ways, number = indices.shape
    demand(values.shape == (number, *shape[ways:]) and ways <= len(shape))
    demand(coalesced is None or isinstance(coalesced, bool))

    def check(look: Look) -> None:
        for axis, limit in zip(look(indices), shape, strict=False):
            _within(axis, 0, limit - 1)

    return Composite(COO, {"": values, "indices": indices}, check)


def _compressed(kind: str, starts: Any, others: Any, values: Any, size: Any) -> Composite:
    shape = shape_of(size)
    demand(is_stored(starts, others, values))
    demand(starts.dtype == others.dtype and starts.dtype in ("int64", "int32") and starts.shape)
    *batch, last = starts.shape
    demand(len(shape) >= len(batch) + 2 and len(others.shape) == len(batch) + 1)
    number, blocks = others.shape[-1], (1, 1)
    if kind in BLOCKED:
        blocks = values.shape[len(batch) + 1 :][:2]
        demand(len(blocks) == 2 and all(blocks))
    sides, dense = shape[len(batch) :][:2], shape[len(batch) + 2 :]
    demand(not any(side % block for side, block in zip(sides, blocks, strict=True)))
    rows, columns = (side // block for side, block in zip(sides, blocks, strict=True))
    mine, other = (rows, columns) if kind in BY_ROW else (columns, rows)
    inner = blocks if kind in BLOCKED else ()
    demand((*batch,) == shape[: len(batch)] and last == mine + 1)
    demand(others.shape == (*batch, number) and values.shape == (*batch, number, *inner, *dense))

    def check(look: Look) -> None:
        import numpy as np

        begins = look(starts)
        _within(begins[..., 0], 0, 0)
        _within(begins[..., -1], number, number)
        _within(np.diff(begins.astype("int64"), axis=-1), 0, other)
        _within(look(others), 0, other - 1)

    return Composite(kind, {"": values, "starts": starts, "others": others}, check)


def nested(buffer: Any, sizes: Any, strides: Any, offsets: Any) -> Composite:
    """Tensors of several shapes in one buffer. Raises :class:`Malformed`."""
    demand(is_stored(buffer, sizes, strides, offsets))
    numbers = (sizes, strides, offsets)
    demand(all(each.dtype == "int64" and without_gaps(each) for each in numbers))
    demand(len(buffer.shape) == 1 and buffer.stride == (1,) and offsets.shape == sizes.shape[:1])
    demand(len(sizes.shape) == 2 and strides.shape == sizes.shape)

    def check(look: Look) -> None:
        each, steps, begins = (look(part).astype("float64") for part in (sizes, strides, offsets))
        for part in (each, steps, begins):
            _within(part, 0, COUNT)
        full = each.min(axis=1, initial=1) > 0
        _within((begins + ((each - 1) * steps).sum(axis=1))[full], 0, buffer.shape[0] - 1)
        _within(begins, 0, buffer.shape[0])

    parts = {"": buffer, "sizes": sizes, "strides": strides, "offsets": offsets}
    return Composite(NESTED, parts, check)


def jagged(words: Any) -> Composite:
    """Rows of several lengths, one behind the other. Raises :class:`Malformed`."""
    found: dict[str, Any] = words if isinstance(words, dict) else {}
    values, offsets, lengths = (numbers_in(found.get(key)) for key in JAGGED[:3])
    ragged = found.get("_ragged_idx", 1)
    demand({*found} <= {*JAGGED} and is_stored(values, offsets))
    demand(offsets.dtype in ("int64", "int32") and len(offsets.shape) == 1 and offsets.shape[0])
    demand(type(ragged) is int and 1 <= ragged <= len(values.shape))
    demand_gradient(found.get("requires_grad", False), None, values.dtype)
    if lengths is not None:
        demand(is_stored(lengths) and lengths.dtype == offsets.dtype)
        demand(lengths.shape in ((offsets.shape[0] - 1,), offsets.shape))

    shortest, most = _cached(found.get("_metadata_cache"))

    def check(look: Look) -> None:
        import numpy as np

        begins, longest = look(offsets).astype("int64"), values.shape[ragged - 1]
        _within(begins, 0, longest)
        each = np.diff(begins)
        _within(each, shortest, min(longest, most))
        if lengths is not None:
            each = look(lengths).astype("int64")
            _within(each, shortest, min(longest, most))
            _within(begins[: len(each)] + each, 0, longest)

    return Composite(
        "jagged", {"" if key == "values" else key: each for key, each in found.items()}, check
    )


def _cached(cache: Any) -> tuple[int, int]:
    """The least and the greatest length that a jagged tensor remembers; each is the first size of a
    tensor without numbers.
    """
    known: dict[str, Any] = cache if isinstance(cache, dict) else {}
    demand(cache is None or {*known} <= {"min_seqlen", "max_seqlen"})
    ends = {key: numbers_in(each) for key, each in known.items()}
    demand(is_stored(*ends.values()) and all(len(each.shape) == 2 for each in ends.values()))
    least, most = (
        ends[key].shape[0] if key in ends else None for key in ("min_seqlen", "max_seqlen")
    )
    return least or 0, COUNT if most is None else most


JAGGED = ("values", "offsets", "lengths", "_ragged_idx", "_metadata_cache", "requires_grad")


def _within(numbers: Any, low: int, high: int) -> None:
    if numbers.size and not (low <= numbers.min() and numbers.max() <= high):
        raise Malformed("its indices point outside of it: reading it would crash")


QUANTA = {
    "qint8": (-128, 127),
    "quint8": (0, 255),
    "qint32": (-(2**31), 2**31 - 1),
    "quint4x2": (0, 15),
    "quint2x4": (0, 3),
}
"""The smallest and largest number of quantized dtypes, and zero point."""

SCALES = (1e-30, 1e28)
"""Scales between which every quantized number is finite."""

SCALE = "a quantized tensor has a scale that no finite number has"

LARGEST = 3.4e38
"""Quantized numbers are read as float32."""

_OWN = """
    H T _backward_hooks _base _cdata _grad _grad_fn _has_symbolic_sizes_strides
    _post_accumulate_grad_hooks _python_dispatch _version data device dtype grad grad_dtype grad_fn
    imag is_cpu is_cuda is_ipu is_leaf is_maia is_meta is_mkldnn is_mps is_mtia is_nested
    is_quantized is_sparse is_sparse_csr is_vulkan is_xla is_xpu itemsize layout mH mT name names
    nbytes ndim output_nr real requires_grad retains_grad shape volatile
"""
OWN = frozenset(_OWN.split())
"""Attributes of a tensor that torch computes: what sets them changes the tensor, or fails."""


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any) -> Stored:
    demand(isinstance(storage, Storage) and storage.dtype != "bytes")
    return view(storage, storage.dtype, offset, shape, stride)


def _tensor_v2(  # noqa: PLR0917 - the arguments that torch gives it
    storage: Any, offset: Any, shape: Any, stride: Any, grad: Any, hooks: Any, bits: Any = None
) -> Stored:
    stored = _tensor(storage, offset, shape, stride)
    demand(stored.dtype not in QUANTA)
    demand_gradient(grad, hooks, stored.dtype)
    demand_bits(bits, stored.dtype)
    return stored


def _tensor_v3(  # noqa: PLR0917 - the arguments that torch gives it
    storage: Any,
    offset: Any,
    shape: Any,
    stride: Any,
    grad: Any,
    hooks: Any,
    kind: Any,
    bits: Any = None,
) -> Stored:
    dtype = dtype_of(kind)
    demand(isinstance(storage, Storage) and not dtype.startswith("q"))
    demand(grad is False)  # with a gradient torch cannot make it
    demand_gradient(grad, hooks, dtype)
    demand_bits(bits, dtype)
    return view(storage, dtype, offset, shape, stride)


def _quantized(  # noqa: PLR0917 - the arguments that torch gives it
    storage: Any, offset: Any, shape: Any, stride: Any, scheme: Any, grad: Any, hooks: Any
) -> Any:
    stored = _tensor(storage, offset, shape, stride)
    demand(
        stored.dtype in pickled_names.QUANTIZED.values() and isinstance(scheme, tuple) and scheme
    )
    packed = PACKED.get(stored.dtype, 1)
    held = max(stored.storage.numel, 1) * packed
    demand(math.prod(stored.shape) <= held)  # torch makes as many first
    demand(packed == 1 or (without_gaps(stored) and not stored.offset))
    demand_gradient(grad, hooks, stored.dtype)
    name = scheme[0].full if isinstance(scheme[0], Name) else ""
    low, high = QUANTA[stored.dtype]
    if name == "torch.per_tensor_affine" and len(scheme) == 3:
        _, scale, zero = scheme
        demand(type(scale) is float and SCALES[0] <= scale <= SCALES[1], SCALE)
        demand(type(zero) is int and low <= zero <= high and packed == 1)
        return stored
    demand(name in PER_CHANNEL and len(scheme) == 4)
    _, scales, zeros, axis = scheme
    demand(type(axis) is int and 0 <= axis < len(stored.shape))
    for each, kinds in zip((scales, zeros), PARAMETERS, strict=True):
        if isinstance(each, list):
            demand(len(each) == stored.shape[axis])
            demand(all(type(number) in (int, float) for number in each))
            demand(all(map(math.isfinite, each)), SCALE)
        else:
            demand(is_stored(each) and each.dtype in kinds)
            demand(each.shape == (stored.shape[axis],))
    by_float = isinstance(zeros, Stored) and zeros.dtype == "float32"  # whatever the name says
    demand(not by_float or stored.dtype != "qint32")  # torch dies of it
    demand(by_float or packed == 1)  # torch cannot read it

    def check(look: Look) -> None:
        import numpy as np

        factors, zero = (
            np.asarray(each if isinstance(each, list) else look(each), "float64")
            for each in (scales, zeros)
        )
        with np.errstate(all="ignore"):
            demand(not (np.abs(factors) * (np.abs(zero) + high - low) > LARGEST).any(), SCALE)
        demand(by_float or not ((zero < low) | (zero > high)).any())

    return Composite("quantized", {"": stored, "scales": scales, "zero_points": zeros}, check)


PER_CHANNEL = ("torch.per_channel_affine", "torch.per_channel_affine_float_qparams")
PARAMETERS = (("float64", "float32"), ("int64", "int32", "float32"))
"""dtypes of the scales and of the zero points of a quantized tensor."""


def _meta(kind: Any, shape: Any, stride: Any, grad: Any) -> Meta:
    sizes, dtype = shape_of(shape), dtype_of(kind)
    demand(len(sizes_of(stride)) == len(sizes))
    shape_of([(size - 1) * step + 1 for size, step in zip(sizes, stride, strict=True) if size > 1])
    demand_gradient(grad, None, dtype)
    return Meta(dtype)


def _layout(name: Any) -> Value:
    demand(name in LAYOUTS)
    return Value(name)


# -- tensors around tensors ------------------------------------------------------------------------


def _inner(data: Any) -> Any:
    demand(is_stored(numbers_in(data)) or isinstance(data, Meta))
    return data


def _dtype_in(data: Any) -> str:
    found: str = numbers_in(data).dtype
    return found


def _parameter(data: Any, grad: Any, hooks: Any) -> Any:
    demand_gradient(grad, hooks, _dtype_in(_inner(data)))
    return Composite(PARAMETER, {"": data})


def _parameter_with_state(data: Any, grad: Any, hooks: Any, state: Any) -> Any:
    return _with(_parameter(data, grad, hooks), state)


def _new_parameter(data: Any, grad: Any = True) -> Any:
    return _parameter(data, grad, None)


def _with(data: Any, state: Any) -> Any:
    """A tensor and its attributes, which may hold more."""
    parts = {key: each for part in attributes(state) for key, each in part.items()}
    if OWN & {*parts}:
        raise Malformed(f"its pickle changes a tensor's {min(OWN & {*parts})} after it was made")
    check = data.check if isinstance(data, Composite) else None
    return Composite("attributes", {"": data, **parts}, check) if parts else data


def _from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    demand(isinstance(function, Name) and isinstance(kind, Name) and isinstance(args, tuple))
    if pickled_names.runs_code(function.full) or pickled_names.runs_code(kind.full):
        return Foreign(function.full, [*args, state])
    demand(function.full in REBUILT and OWN_WAY.get(function.full, kind.full) == kind.full)
    demand(kind.full in SUBCLASSES or kind.full in OWN_WAY.values())
    made = REBUILT[function.full](*args)
    if function.full == JAGGED_WAY:
        state = _same(args[0], state)
    if isinstance(made, Shell):
        demand(any(is_tensor(part.get("_local_tensor")) for part in attributes(state)))
    return _with(made, state)


def _same(words: dict[str, Any], state: Any) -> dict[str, Any]:
    """The attributes of a jagged tensor, without those that it was made of: these may not be others
    now.
    """
    found = {key: each for part in attributes(state) for key, each in part.items()}
    for name in JAGGED[:5]:
        own = name if name.startswith("_") else f"_{name}"
        demand(own not in found or found.pop(own) is words.get(name))
    return found


SUBCLASSES = ("torch.Tensor", "torch.nn.parameter.Parameter")
DISTRIBUTED = "torch.distributed.tensor.DTensor"
JAGGED_WAY = "torch.nested._internal.nested_tensor._rebuild_njt"
OWN_WAY = {
    "torch._utils._rebuild_wrapper_subclass": DISTRIBUTED,
    JAGGED_WAY: "torch.nested._internal.nested_tensor.NestedTensor",
}
"""Classes of tensors that are made in a way of their own."""


def _wrapper(  # noqa: PLR0917 - the arguments that torch gives it
    kind: Any, dtype: Any, shape: Any, stride: Any, offset: Any, layout: Any, device: Any, grad: Any
) -> Any:
    demand(isinstance(kind, Name))
    if pickled_names.runs_code(kind.full):
        return Foreign(kind.full, [])
    demand(kind.full == DISTRIBUTED and is_count(offset))
    demand(isinstance(layout, Value) and layout.kind in LAYOUTS)
    place_of(device.kind if isinstance(device, Value) else device)
    return Shell(_meta(dtype, shape, stride, grad).dtype)


def _elsewhere(data: Any, kind: Any, device: Any, grad: Any, *, array: bool) -> Any:
    """A tensor of another device, saved as one of the CPU: its numbers may only be widened."""
    dtype = dtype_of(kind)
    demand(isinstance(data, Stored) and bool(data.storage.raw) == array != is_stored(data))
    demand(data.dtype == dtype or (data.dtype, dtype) == ("float32", "bfloat16"))
    place_of(device)
    demand_gradient(grad, None, dtype)
    return data


def _size(sizes: Any = ()) -> tuple[Any, ...]:
    demand(isinstance(sizes, (list, tuple)) and all(map(is_count, sizes)))
    return tuple(sizes)


def _device(name: Any, index: Any = None) -> Value:
    place_of(name)
    demand(index is None or (":" not in name and is_count(index) and index < DEVICE_NUMBERS))
    return Value(name)


REBUILT: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_qtensor": _quantized,
    "torch._utils._rebuild_sparse_tensor": sparse,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    NESTED: nested,
    "torch._utils._rebuild_wrapper_subclass": _wrapper,
    "torch._utils._rebuild_device_tensor_from_numpy": partial(_elsewhere, array=True),
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": partial(_elsewhere, array=False),
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter_with_state,
    JAGGED_WAY: jagged,
}
"""The functions that make tensors of storages."""

CALLS: dict[str, Callable[..., Any]] = {
    **REBUILT,
    "torch.Size": _size,
    "torch.device": _device,
    "torch.serialization._get_layout": _layout,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch.nn.parameter.Parameter": _new_parameter,
}
"""What stands for the result of each function of torch that a checkpoint calls."""

NEW: dict[str, Callable[..., Any]] = {"torch.nn.parameter.Parameter": _new_parameter}
"""As :data:`CALLS`, where the class is made without its ``__init__``."""
