"""What torch's own functions make of storages: each looks at all of its arguments, and stands for
the result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from auditor.checkpoints import allowed
from auditor.checkpoints.contents import BYTES, COUNT, Malformed, Storage, Stored
from auditor.checkpoints.marks import Composite, Foreign, Look, Name, Value, attributes

DEVICES = (
    "cpu|cuda|ipu|xpu|mkldnn|opengl|opencl|ideep|hip|ve|fpga|maia|xla|lazy|vulkan|mps|meta|hpu|mtia"
    "|privateuseone|npu|mlu|musa"
)
"""Kinds of devices that torch and the packages that extend it know."""

DEVICE = re.compile(rf"(?:{DEVICES})(?::(?:\d|[1-9]\d|1[01]\d|12[0-7]))?")
INDICES = 128

DIMENSIONS = 64
"""Of a tensor at most: more than any operator of torch takes."""

QUANTA = {"qint8": (-128, 127), "quint8": (0, 255), "qint32": (-(2**31), 2**31 - 1)}
"""The smallest and largest zero point of quantized dtypes."""

SCALES = (1e-30, 1e28)
"""Scales between which every quantized number is finite."""

_OWN = """
    H T _backward_hooks _base _cdata _grad _grad_fn _has_symbolic_sizes_strides
    _post_accumulate_grad_hooks _python_dispatch _version data device dtype grad grad_dtype grad_fn
    imag is_cpu is_cuda is_ipu is_leaf is_maia is_meta is_mkldnn is_mps is_mtia is_nested
    is_quantized is_sparse is_sparse_csr is_vulkan is_xla is_xpu itemsize layout mH mT name names
    nbytes ndim output_nr real requires_grad retains_grad shape volatile
"""
OWN = frozenset(_OWN.split())
"""Attributes of a tensor that torch computes: what sets them changes the tensor, or fails."""

COO = "torch.sparse_coo"
BY_ROW = ("torch.sparse_csr", "torch.sparse_bsr")
BLOCKED = ("torch.sparse_bsr", "torch.sparse_bsc")
COMPRESSED = (*BY_ROW, "torch.sparse_csc", "torch.sparse_bsc")
LAYOUTS = frozenset({"torch.strided", "torch.jagged", "torch._mkldnn", COO, *COMPRESSED})

WRONG = "a tensor is described wrongly"


def is_count(value: Any) -> bool:
    """True for an integer that a size, an offset or a stride can be."""
    return type(value) is int and 0 <= value < COUNT


def _demand(holds: Any, problem: str = WRONG) -> None:
    if not holds:
        raise Malformed(problem)


def _sizes(value: Any) -> tuple[int, ...]:
    """A shape or strides. Raises :class:`Malformed`."""
    sizes: tuple[int, ...] = tuple(value) if isinstance(value, (tuple, list)) else (-1,)
    _demand(len(sizes) <= DIMENSIONS and all(map(is_count, sizes)))
    return sizes


def shape_of(value: Any, width: int = 16) -> tuple[int, ...]:
    """A shape of which the bytes can be counted. Raises :class:`Malformed`."""
    shape = _sizes(value)
    _demand(math.prod(max(each, 1) for each in shape) * width < COUNT)
    return shape


def dtype_of(value: Any) -> str:
    """Word for a dtype. Raises :class:`Malformed` for anything else."""
    name = allowed.VALUES.get(value.full, "") if isinstance(value, Name) else ""
    _demand(name and not name.startswith("per_"))
    return name


def place_of(value: Any) -> str:
    """Where a tensor was. Raises :class:`Malformed` for a device that torch does not know."""
    _demand(
        isinstance(value, str) and DEVICE.fullmatch(value), "it names a device that there is not"
    )
    return str(value)


def view(storage: Any, dtype: str, offset: Any, shape: Any, stride: Any) -> Stored:
    """A tensor of a storage, within it. Raises :class:`Malformed`."""
    _demand(isinstance(storage, Storage) and is_count(offset))
    width = BYTES.get(dtype, 1)
    stored = Stored(storage, dtype, offset + storage.shift, shape_of(shape, width), _sizes(stride))
    _demand(len(stored.shape) == len(stored.stride))
    held, last = storage.within * BYTES.get(storage.dtype, width), (offset + stored.span) * width
    if last > held:
        raise Malformed(f"a tensor needs bytes {offset * width} to {last} of a storage of {held}")
    return stored


def _graded(grad: Any, hooks: Any, dtype: str) -> None:
    """Integers have no gradient; hooks are functions, and none are saved."""
    floating = dtype.startswith(("float", "bfloat", "complex"))
    _demand(isinstance(grad, bool) and (floating or not grad))
    _demand(hooks is None or (isinstance(hooks, dict) and not hooks), "a tensor has hooks")


def _bits(metadata: Any, dtype: str) -> None:
    """Marks of a tensor that is read conjugated or negated."""
    if metadata is None:
        return
    _demand(isinstance(metadata, dict) and {*metadata} <= {"conj", "neg"})
    _demand(all(isinstance(each, bool) for each in metadata.values()))
    _demand(not metadata.get("conj") or dtype.startswith("complex"))


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any) -> Stored:
    _demand(isinstance(storage, Storage) and storage.dtype != "bytes")
    return view(storage, storage.dtype, offset, shape, stride)


def _tensor_v2(  # noqa: PLR0917 - the arguments that torch gives it
    storage: Any, offset: Any, shape: Any, stride: Any, grad: Any, hooks: Any, bits: Any = None
) -> Stored:
    stored = _tensor(storage, offset, shape, stride)
    _demand(stored.dtype not in QUANTA)
    _graded(grad, hooks, stored.dtype)
    _bits(bits, stored.dtype)
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
    _demand(isinstance(storage, Storage) and not dtype.startswith("q"))
    _demand(grad is False)  # with a gradient torch cannot make it
    _graded(grad, hooks, dtype)
    _bits(bits, dtype)
    return view(storage, dtype, offset, shape, stride)


def _quantized(  # noqa: PLR0917 - the arguments that torch gives it
    storage: Any, offset: Any, shape: Any, stride: Any, scheme: Any, grad: Any, hooks: Any
) -> Any:
    stored = _tensor(storage, offset, shape, stride)
    _demand(stored.dtype in allowed.QUANTIZED.values() and isinstance(scheme, tuple) and scheme)
    _graded(grad, hooks, stored.dtype)
    name = scheme[0].full if isinstance(scheme[0], Name) else ""
    low, high = QUANTA.get(stored.dtype, (0, 255))
    if name == "torch.per_tensor_affine" and len(scheme) == 3:
        _, scale, zero = scheme
        _scale(scale)
        _demand(type(zero) is int and low <= zero <= high)
        return stored
    _demand(name in PER_CHANNEL and len(scheme) == 4)
    _, scales, zeros, axis = scheme
    _demand(type(axis) is int and 0 <= axis < len(stored.shape))
    for each, kinds in zip((scales, zeros), PARAMETERS, strict=True):
        if isinstance(each, list):
            _demand(len(each) == stored.shape[axis])
            _demand(all(type(number) in (int, float) for number in each))
        else:
            _demand(isinstance(each, Stored) and each.dtype in kinds)
            _demand(each.shape == (stored.shape[axis],))
    for scale in scales if isinstance(scales, list) else ():
        _scale(scale)
    return Composite("quantized", {"": stored, "scales": scales, "zero_points": zeros})


PER_CHANNEL = ("torch.per_channel_affine", "torch.per_channel_affine_float_qparams")
PARAMETERS = (("float64", "float32"), ("int64", "int32", "float32"))
"""dtypes of the scales and of the zero points of a quantized tensor."""


def _scale(scale: Any) -> None:
    _demand(
        type(scale) is float and SCALES[0] <= scale <= SCALES[1],
        "a quantized tensor has a scale that no finite number has",
    )


def _meta(kind: Any, shape: Any, stride: Any, grad: Any) -> Value:
    sizes, dtype = shape_of(shape), dtype_of(kind)
    _demand(len(_sizes(stride)) == len(sizes))
    shape_of([(size - 1) * step + 1 for size, step in zip(sizes, stride, strict=True) if size > 1])
    _graded(grad, None, dtype)
    return Value("torch.Tensor")


def _layout(name: Any) -> Name:
    _demand(name in LAYOUTS)
    return Name(f"layout {name}")


# -- tensors whose numbers say where others are ----------------------------------------------------


def _sparse(layout: Any, parts: Any) -> Composite:
    kind = layout.full.removeprefix("layout ") if isinstance(layout, Name) else ""
    _demand(isinstance(parts, tuple) and kind in (COO, *COMPRESSED))
    return _coo(*parts) if kind == COO else _compressed(kind, *parts)


def _coo(indices: Any, values: Any, size: Any, coalesced: Any = None) -> Composite:
    shape = shape_of(size)
    _demand(isinstance(indices, Stored) and isinstance(values, Stored))
    _demand(indices.dtype == "int64" and len(indices.shape) == 2 and values.shape)
    ways, number = indices.shape
    _demand(values.shape == (number, *shape[ways:]) and ways <= len(shape))
    _demand(coalesced is None or isinstance(coalesced, bool))

    def check(look: Look) -> None:
        import numpy as np

        found = look(indices)
        for axis, limit in zip(found, shape, strict=False):
            _within(axis, 0, limit - 1)
        if coalesced and ways and number:
            _within(np.diff(np.ravel_multi_index(tuple(found), shape[:ways])), 1, COUNT)

    return Composite(COO, {"": values, "indices": indices}, check)


def _compressed(kind: str, starts: Any, others: Any, values: Any, size: Any) -> Composite:
    shape = shape_of(size)
    _demand(all(isinstance(each, Stored) for each in (starts, others, values)))
    _demand(starts.dtype == others.dtype and starts.dtype in ("int64", "int32") and starts.shape)
    *batch, last = starts.shape
    _demand(len(shape) >= len(batch) + 2 and len(others.shape) == len(batch) + 1)
    number, blocks = others.shape[-1], (1, 1)
    if kind in BLOCKED:
        blocks = values.shape[len(batch) + 1 :][:2]
        _demand(len(blocks) == 2 and all(blocks))
    sides, dense = shape[len(batch) :][:2], shape[len(batch) + 2 :]
    _demand(not any(side % block for side, block in zip(sides, blocks, strict=True)))
    rows, columns = (side // block for side, block in zip(sides, blocks, strict=True))
    mine, other = (rows, columns) if kind in BY_ROW else (columns, rows)
    inner = blocks if kind in BLOCKED else ()
    _demand((*batch,) == shape[: len(batch)] and last == mine + 1)
    _demand(others.shape == (*batch, number) and values.shape == (*batch, number, *inner, *dense))

    def check(look: Look) -> None:
        import numpy as np

        begins = look(starts)
        _within(begins[..., 0], 0, 0)
        _within(begins[..., -1], number, number)
        _within(np.diff(begins.astype("int64"), axis=-1), 0, other)
        _within(look(others), 0, other - 1)

    return Composite(kind, {"": values, "starts": starts, "others": others}, check)


def _nested(buffer: Any, sizes: Any, strides: Any, offsets: Any) -> Composite:
    _demand(all(isinstance(each, Stored) for each in (buffer, sizes, strides, offsets)))
    _demand(all(each.dtype == "int64" for each in (sizes, strides, offsets)))
    _demand(len(buffer.shape) == 1 and buffer.stride == (1,) and offsets.shape == sizes.shape[:1])
    _demand(len(sizes.shape) == 2 and strides.shape == sizes.shape)

    def check(look: Look) -> None:
        each, steps, begins = (look(part).astype("float64") for part in (sizes, strides, offsets))
        for part in (each, steps, begins):
            _within(part, 0, COUNT)
        full = each.min(axis=1, initial=1) > 0
        _within((begins + ((each - 1) * steps).sum(axis=1))[full], 0, buffer.shape[0] - 1)
        _within(begins, 0, buffer.shape[0])

    parts = {"": buffer, "sizes": sizes, "strides": strides, "offsets": offsets}
    return Composite(NESTED, parts, check)


def _jagged(words: Any) -> Composite:
    found: dict[str, Any] = words if isinstance(words, dict) else {}
    values, offsets, lengths = (_numbers_in(found.get(key)) for key in JAGGED[:3])
    ragged = found.get("_ragged_idx", 1)
    _demand({*found} <= {*JAGGED} and isinstance(values, Stored) and isinstance(offsets, Stored))
    _demand(offsets.dtype in ("int64", "int32") and len(offsets.shape) == 1 and offsets.shape[0])
    _demand(type(ragged) is int and 1 <= ragged <= len(values.shape))
    _graded(found.get("requires_grad", False), None, values.dtype)
    if lengths is not None:
        _demand(isinstance(lengths, Stored) and lengths.dtype == offsets.dtype)
        _demand(lengths.shape in ((offsets.shape[0] - 1,), offsets.shape))

    def check(look: Look) -> None:
        import numpy as np

        begins, longest = look(offsets).astype("int64"), values.shape[ragged - 1]
        _within(begins, 0, longest)
        _within(np.diff(begins), 0, longest)
        if lengths is not None:
            each = look(lengths).astype("int64")
            _within(each, 0, longest)
            _within(begins[: len(each)] + each, 0, longest)

    return Composite(
        "jagged", {"" if key == "values" else key: each for key, each in found.items()}, check
    )


JAGGED = ("values", "offsets", "lengths", "_ragged_idx", "_metadata_cache", "requires_grad")


def _within(numbers: Any, low: int, high: int) -> None:
    if numbers.size and not (low <= numbers.min() and numbers.max() <= high):
        raise Malformed("its indices point outside of it: reading it would crash")


# -- tensors around tensors ------------------------------------------------------------------------


def is_tensor(value: Any) -> bool:
    """True for what stands for a tensor, a quantized, sparse or nested one too."""
    return isinstance(value, (Stored, Composite))


def _inner(data: Any) -> Any:
    _demand(is_tensor(data) or (isinstance(data, Value) and data.kind == "torch.Tensor"))
    return data


def _numbers_in(data: Any) -> Any:
    """The tensor that has the numbers of one with attributes."""
    while isinstance(data, Composite):
        data = data.parts[0][""]
    return data


def _dtype_in(data: Any) -> str:
    stored = _numbers_in(data)
    return stored.dtype if isinstance(stored, Stored) else "float32"


def _parameter(data: Any, grad: Any, hooks: Any) -> Any:
    _graded(grad, hooks, _dtype_in(_inner(data)))
    return data


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
    _demand(isinstance(function, Name) and isinstance(kind, Name) and isinstance(args, tuple))
    if allowed.runs_code(function.full) or allowed.runs_code(kind.full):
        return Foreign(function.full, [*args, state])
    _demand(function.full in REBUILT and kind.full in SUBCLASSES)
    return _with(REBUILT[function.full](*args), state)


SUBCLASSES = (
    "torch.Tensor",
    "torch.nn.parameter.Parameter",
    "torch.distributed.tensor.DTensor",
    "torch.nested._internal.nested_tensor.NestedTensor",
)
"""Classes of tensors that torch knows."""


def _wrapper(  # noqa: PLR0917 - the arguments that torch gives it
    kind: Any,
    dtype: Any,
    shape: Any,
    stride: Any,
    offset: Any,
    layout: Any,
    device: Any,
    grad: Any,
) -> Any:
    _demand(isinstance(kind, Name))
    if allowed.runs_code(kind.full):
        return Foreign(kind.full, [])
    _demand(kind.full in SUBCLASSES[2:] and is_count(offset) and isinstance(layout, Name))
    place_of(device.kind if isinstance(device, Value) else device)
    return _meta(dtype, shape, stride, grad)


def _elsewhere(data: Any, kind: Any, device: Any, grad: Any, *, array: bool) -> Any:
    """A tensor of another device, saved as one of the CPU: its numbers may only be widened."""
    dtype = dtype_of(kind)
    _demand(isinstance(data, Stored) and (data.storage.raw is not None) == array)
    _demand(data.dtype == dtype or (data.dtype, dtype) == ("float32", "bfloat16"))
    place_of(device)
    _graded(grad, None, dtype)
    return data


def _size(sizes: Any = ()) -> tuple[Any, ...]:
    _demand(isinstance(sizes, (list, tuple)) and all(map(is_count, sizes)))
    return tuple(sizes)


def _device(name: Any, index: Any = None) -> Value:
    place_of(name)
    _demand(index is None or (":" not in name and is_count(index) and index < INDICES))
    return Value(name)


def complete(storage: Storage) -> Stored:
    """All of a storage, as one tensor."""
    return Stored(storage, storage.dtype, storage.shift, (storage.within,), (1,))


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of an array without gaps."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


NESTED = "torch._utils._rebuild_nested_tensor"

REBUILT: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_qtensor": _quantized,
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    NESTED: _nested,
    "torch._utils._rebuild_wrapper_subclass": _wrapper,
    "torch._utils._rebuild_device_tensor_from_numpy": partial(_elsewhere, array=True),
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": partial(_elsewhere, array=False),
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter_with_state,
    "torch.nested._internal.nested_tensor._rebuild_njt": _jagged,
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
