"""Sizes, dtypes, places and views as a pickle describes them: each is looked at before anything is
made of it.
"""

from __future__ import annotations

import math
import re
from typing import Any

from auditor.evidence import pickled_names
from auditor.extensions.checkpoints.contents import BYTES, COUNT, Malformed, Storage, Stored
from auditor.extensions.checkpoints.marks import Composite, Name

DEVICES = (
    "cpu|cuda|ipu|xpu|mkldnn|opengl|opencl|ideep|hip|ve|fpga|maia|xla|lazy|vulkan|mps|meta|hpu|mtia"
    "|privateuseone|npu|mlu|musa"
)
"""Kinds of devices that torch and the packages that extend it know."""

DEVICE = re.compile(rf"(?:{DEVICES})(?::(?:\d|[1-9]\d|1[01]\d|12[0-7]))?")
DEVICE_NUMBERS = 128

DIMENSIONS = 64
"""Of a tensor at most: more than any operator of torch takes."""

WRONG = "a tensor is described wrongly"


def is_count(value: Any) -> bool:
    """True for an integer that a size, an offset or a stride can be."""
    return type(value) is int and 0 <= value < COUNT


def is_stored(*values: Any) -> bool:
    """True for tensors whose numbers stand in storages, which nothing changes any more."""
    return all(type(value) is Stored for value in values)


def demand(holds: Any, problem: str = WRONG) -> None:
    """Raises :class:`Malformed` unless it holds."""
    if not holds:
        raise Malformed(problem)


def sizes_of(value: Any) -> tuple[int, ...]:
    """A shape or strides. Raises :class:`Malformed`."""
    sizes: tuple[int, ...] = tuple(value) if isinstance(value, (tuple, list)) else (-1,)
    demand(len(sizes) <= DIMENSIONS and all(map(is_count, sizes)))
    return sizes


def shape_of(value: Any, width: int = 16) -> tuple[int, ...]:
    """A shape of which the bytes can be counted. Raises :class:`Malformed`."""
    shape = sizes_of(value)
    demand(math.prod(max(each, 1) for each in shape) * width < COUNT)
    return shape


def dtype_of(value: Any) -> str:
    """Word for a dtype. Raises :class:`Malformed` for anything else."""
    name = pickled_names.VALUES.get(value.full, "") if isinstance(value, Name) else ""
    demand(name and not name.startswith("per_"))
    return name


def place_of(value: Any) -> str:
    """Where a tensor was. Raises :class:`Malformed` for a device that torch does not know."""
    demand(
        isinstance(value, str) and DEVICE.fullmatch(value), "it names a device that there is not"
    )
    return str(value)


def view(storage: Any, dtype: str, offset: Any, shape: Any, stride: Any) -> Stored:
    """A tensor of a storage, within it. Raises :class:`Malformed`."""
    demand(isinstance(storage, Storage) and is_count(offset))
    width = BYTES.get(dtype, 1)
    stored = Stored(
        storage, dtype, offset + storage.shift, shape_of(shape, width), sizes_of(stride)
    )
    demand(len(stored.shape) == len(stored.stride))
    held, last = storage.within * BYTES.get(storage.dtype, width), (offset + stored.span) * width
    if stored.span and last > held:
        raise Malformed(f"a tensor needs bytes {offset * width} to {last} of a storage of {held}")
    return stored


def demand_gradient(grad: Any, hooks: Any, dtype: str) -> None:
    """Integers have no gradient; hooks are functions, and none are saved."""
    floating = dtype.startswith(("float", "bfloat", "complex"))
    demand(isinstance(grad, bool) and (floating or not grad))
    demand(hooks is None or (isinstance(hooks, dict) and not hooks), "a tensor has hooks")


def demand_bits(metadata: Any, dtype: str) -> None:
    """Marks of a tensor that is read conjugated or negated: torch sets either, even for False: the first of
    complex numbers only, the second of dtypes that it can negate.
    """
    if metadata is None:
        return
    demand(isinstance(metadata, dict) and {*metadata} <= {"conj", "neg"})
    demand(all(isinstance(each, bool) for each in metadata.values()))
    demand("conj" not in metadata or dtype.startswith("complex"))
    demand("neg" not in metadata or dtype in NEGATED)


NEGATED = frozenset(
    """
    float64 float32 float16 bfloat16 complex128 complex64 complex32 int64 int32 int16 int8 uint8
    """.split()
)
"""dtypes of which torch can read a negated tensor."""


def is_tensor(value: Any) -> bool:
    """True for what stands for a tensor, a quantized, sparse or nested one too."""
    return isinstance(value, (Stored, Composite))


def numbers_in(data: Any) -> Any:
    """The tensor that has the numbers of one with attributes."""
    while isinstance(data, Composite):
        data = data.parts[0][""]
    return data


def complete(storage: Storage) -> Stored:
    """All of a storage, as one tensor."""
    return Stored(storage, storage.dtype, storage.shift, (storage.within,), (1,))


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of an array without gaps."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def without_gaps(stored: Stored) -> bool:
    """True for a tensor whose numbers stand in their order, one behind the other."""
    steps = zip(stored.shape, stored.stride, contiguous(stored.shape), strict=True)
    return 0 in stored.shape or all(size == 1 or step == own for size, step, own in steps)
