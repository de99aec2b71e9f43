"""What is counted of a call, and the arithmetic of shapes that the countings share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from auditor.extensions.forecast.calls import Call, Tensor

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
    vector_flops: float | None = None
    """FLOPs where no tensor core computes them, if an algorithm then needs fewer (Winograd)."""
    tile_share: float = 1.0
    """Share of the FLOPs of whole tiles that is asked for: odd channels leave tiles half empty."""
    product: tuple[int, int, int, int] | None = None
    """Batch, rows, columns and depth of a matrix product."""


def arithmetic_of(tensor: Tensor) -> str:
    """What products of a tensor's type are computed in, TF32 left aside."""
    if tensor.dtype in {"float16", "bfloat16"}:
        return HALF
    if tensor.dtype == "float64":
        return FP64
    return FP8 if tensor.item_bytes == 1 and tensor.dtype.startswith("float8") else FP32


def broadcast(shapes: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The shape that shapes broadcast to; sizes that do not fit count as the larger."""
    sizes: list[int] = []
    for shape in shapes:
        for place, size in enumerate(reversed(shape)):
            if place == len(sizes):
                sizes.append(size)
            elif sizes[place] == 1 or size == 0:
                sizes[place] = size
            elif size != 1:
                sizes[place] = max(sizes[place], size)
    return tuple(reversed(sizes))


def read(tensors: Iterable[Tensor]) -> float:
    """Bytes that reading tensors of the device moves."""
    return float(sum(tensor.stored_bytes for tensor in tensors if not tensor.on_host))


def written(tensors: Iterable[Tensor]) -> float:
    """Bytes that writing tensors moves."""
    return float(sum(tensor.size_bytes for tensor in tensors))


def in_place(call: Call) -> bool:
    """Whether an operator writes its first argument (``add_``, not ``__iand__``)."""
    return call.operator.endswith("_") and not call.operator.startswith("__")
