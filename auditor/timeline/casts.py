"""Conversions between types, and matrix products of awkward sizes: what autocast does to a
trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from auditor.timeline.naming import mask
from auditor.timeline.operands import is_half, shapes, types
from auditor.timeline.trace import KERNEL, Ints, Trace
from auditor.timeline.tree import CallTree

TENSOR_CORE_MULTIPLE = 8
PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
"""Operators of matrix products, and the place of their first factor."""


@dataclass(frozen=True)
class Casts:
    """``aten::_to_copy`` that ran a kernel: a conversion on the device. ``ns`` is the device time
    of those kernels.
    """

    rows: Ints
    ns: int


def casts(trace: Trace, tree: CallTree, launcher: Ints) -> Casts:
    """Conversions on the device. Copies between devices are no kernels, and not among them."""
    converting = mask(trace.names, tree.name, lambda name: name == "aten::_to_copy")
    work = np.flatnonzero((trace.work.kind == KERNEL) & (launcher >= 0))
    row = launcher[work]
    above = np.where(converting[row], row, tree.nearest(row, converting)) if len(row) else row
    inside = above >= 0
    spent = (trace.work.end - trace.work.start)[work[inside]]
    return Casts(np.unique(above[inside]), int(spent.sum()))


@dataclass(frozen=True)
class AwkwardProducts:
    """16-bit products with an inner or last size that is no multiple of 8. ``looked`` is False
    without recorded shapes.
    """

    looked: bool
    sizes: tuple[tuple[str, int], ...]
    """``k x n`` of the products, and their device time in ns, the longest first."""
    ns: int


def awkward_products(trace: Trace, launched_ns: Ints) -> AwkwardProducts:
    """Products on 16-bit inputs whose sizes do not fit the tensor cores' tiles."""
    spans = trace.operators
    wanted = mask(trace.names, spans.name, lambda name: name in PRODUCTS)
    rows = np.flatnonzero(wanted & (spans.shapes >= 0) & (spans.types >= 0))
    keys = np.stack((spans.name[rows], spans.shapes[rows], spans.types[rows]), axis=1)
    unique, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    time = np.bincount(which.ravel(), weights=launched_ns[rows], minlength=len(unique))
    found: dict[str, int] = {}
    for row, ns in zip(rows[first].tolist(), time.tolist(), strict=True):
        if size := _awkward(trace, row):
            found[size] = found.get(size, 0) + int(ns)
    longest = sorted(found.items(), key=lambda item: -item[1])
    return AwkwardProducts(bool(len(rows)), tuple(longest), sum(found.values()))


def _awkward(trace: Trace, row: int) -> str:
    """``k x n`` of a 16-bit product where one of them is no multiple of 8, else empty."""
    sizes, kinds = shapes(trace, row), types(trace, row)
    place = PRODUCTS[trace.names[trace.operators.name[row]]]
    if (
        len(sizes) < place + 2
        or len(kinds) < place + 2
        or not (is_half(kinds[place]) and is_half(kinds[place + 1]))
    ):
        return ""
    left, right = sizes[place], sizes[place + 1]
    if len(left) < 2 or len(right) < 2:
        return ""
    k, n = left[-1], right[-1]
    return f"{k} x {n}" if k % TENSOR_CORE_MULTIPLE or n % TENSOR_CORE_MULTIPLE else ""
