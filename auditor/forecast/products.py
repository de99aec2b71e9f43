"""Matrix products: batch, rows, columns and depth of a call."""

from __future__ import annotations

import math

from auditor.forecast import kinds
from auditor.forecast.calls import Call, Tensor
from auditor.forecast.counted import Counts, arithmetic_of, read

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
