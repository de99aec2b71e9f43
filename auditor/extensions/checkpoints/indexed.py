"""Sparse and nested tensors: some of their numbers say where others are, and must point inside.
Torch does not look, and crashes later.
"""

from __future__ import annotations

from typing import Any

from auditor.extensions.checkpoints.contents import COUNT, Malformed
from auditor.extensions.checkpoints.described import (
    demand,
    demand_gradient,
    is_stored,
    numbers_in,
    shape_of,
    without_gaps,
)
from auditor.extensions.checkpoints.marks import Composite, Look, Value

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
