"""What is added up over a trace: time by kind of work and arithmetic, memory, collectives, casts."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from auditor.timeline.device import DeviceUse, ns_by_name
from auditor.timeline.intervals import (
    Intervals,
    groups,
    is_communication,
    mask,
    spans_of,
    without,
)
from auditor.timeline.trace import KERNEL, Codes, Ints, Trace

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline


HALF_TYPES = frozenset({"c10::Half", "c10::BFloat16", "struct c10::Half", "struct c10::BFloat16"})


def shapes(trace: Trace, row: int) -> list[Any]:
    """``Input Dims`` of an operator: sizes of each input, empty for no tensor, or not recorded."""
    return _decoded(trace, int(trace.operators.shapes[row]))


def types(trace: Trace, row: int) -> list[Any]:
    """``Input type`` of an operator, one text for each input. Empty if not recorded."""
    return _decoded(trace, int(trace.operators.types[row]))


def is_half(name: object) -> bool:
    """Whether this is a 16-bit floating-point type as traces spell it."""
    return isinstance(name, str) and name in HALF_TYPES


def _decoded(trace: Trace, code: int) -> list[Any]:
    if code < 0:
        return []
    try:
        found = msgspec.json.decode(trace.texts[code])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # kept as raw bytes, and never looked into before
        return []
    return found if isinstance(found, list) else []


@dataclass(frozen=True)
class Total:
    """What of one name ran in the whole trace. Time in ns, summed over what ran at once."""

    name: str
    calls: int
    ns: int


def launching_operator(line: Timeline) -> Ints:
    """For each device work the row of the innermost operator around its launch, -1 where not known."""
    call, tree = line.launches.call_of_work, line.tree
    result: Ints = np.full(len(call), -1, np.int64)
    known = call >= 0
    result[known] = tree.parent[call[known] + tree.operators]
    return result


def operator_totals(line: Timeline) -> tuple[Total, ...]:
    """Operators (no annotations), the longest own host time first: without what is inside."""
    trace, tree = line.trace, line.tree
    own = ~trace.operators.annotation
    return _totals(trace, trace.operators.name[own], tree.self_ns()[: tree.operators][own])


def kernel_totals(line: Timeline) -> tuple[Total, ...]:
    """Kernels of all devices, the longest first."""
    work, kernels = line.trace.work, line.trace.work.kind == KERNEL
    return _totals(line.trace, work.name[kernels], (work.end - work.start)[kernels])


def call_totals(line: Timeline) -> tuple[Total, ...]:
    """Calls of the runtime and the driver by name, the longest first."""
    calls = line.trace.calls
    return _totals(line.trace, calls.name, calls.end - calls.start)


def _totals(trace: Trace, name: Codes, ns: Ints) -> tuple[Total, ...]:
    calls = np.bincount(name, minlength=len(trace.names))
    time = np.bincount(name, weights=ns, minlength=len(trace.names))
    found = [
        Total(trace.names[code], int(calls[code]), int(time[code]))
        for code in np.flatnonzero(calls).tolist()
    ]
    return tuple(sorted(found, key=lambda one: (-one.ns, one.name)))


@dataclass(frozen=True)
class MemoryUse:
    """One device's memory events. Totals are bytes, -1 where torch wrote none."""

    device_type: int
    """0 host, 1 CUDA or HIP."""
    device: int
    peak_allocated: int
    peak_reserved: int


def memory_use(line: Timeline) -> tuple[MemoryUse, ...]:
    """Memory events of a trace by device; empty if memory was not profiled."""
    events = line.trace.memory
    rows = np.flatnonzero(mask(line.trace.names, events.name, "[memory]".__eq__))
    keys = events.device_type[rows].astype(np.int64) * (1 << 33) + events.device[rows]
    return tuple(
        MemoryUse(
            device_type=int(events.device_type[of_one[0]]),
            device=int(events.device[of_one[0]]),
            peak_allocated=int(events.allocated[of_one].max()),
            peak_reserved=int(events.reserved[of_one].max()),
        )
        for of_one in (rows[part] for _, part in groups(keys))
    )


_SIGNATURE = re.compile(r"[(<]")


@dataclass(frozen=True)
class Communication:
    """Communication of one device. In ns; *exposed*: a collective and no other kernel ran."""

    device: int
    rows: Ints
    """Rows of :class:`Work` that communicate, in order of time."""
    busy: Intervals
    exposed: Intervals
    names: dict[str, int]
    """Kernels by name without arguments."""
    computing: Intervals
    """Time in which other kernels ran."""


def communications(line: Timeline) -> tuple[Communication, ...]:
    """Collectives of each device that has any."""
    return tuple(found for use in line.devices if (found := _communication(line.trace, use)))


def _communication(trace: Trace, use: DeviceUse) -> Communication | None:
    work = trace.work
    kernels = use.rows[work.kind[use.rows] == KERNEL]
    talking = mask(trace.names, work.name[kernels], is_communication)
    if not talking.any():
        return None
    rows = kernels[talking]
    busy, compute = spans_of(work, rows), spans_of(work, kernels[~talking])
    names = Counter(_SIGNATURE.split(trace.names[code])[0] for code in work.name[rows].tolist())
    return Communication(
        use.device, rows, busy, without(busy, compute), dict(names.most_common()), compute
    )


TENSOR_CORE_MULTIPLE = 8
PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
"""Operators of matrix products, and the place of their first factor."""


@dataclass(frozen=True)
class Casts:
    """``aten::_to_copy`` that ran a kernel: a conversion. ``ns`` is those kernels' time."""

    rows: Ints
    ns: int


def casts(line: Timeline) -> Casts:
    """Conversions on the device. Copies between devices are no kernels, and not among them."""
    trace, tree, launcher = line.trace, line.tree, line.launching_operator
    converting = mask(trace.names, tree.name, "aten::_to_copy".__eq__)
    work = np.flatnonzero((trace.work.kind == KERNEL) & (launcher >= 0))
    row = launcher[work]
    above = np.where(converting[row], row, tree.nearest(row, converting))
    inside = above >= 0
    spent = (trace.work.end - trace.work.start)[work[inside]]
    return Casts(np.unique(above[inside]), int(spent.sum()))


@dataclass(frozen=True)
class AwkwardProducts:
    """16-bit products with a size not of 8. ``looked`` is False without recorded shapes."""

    looked: bool
    sizes: tuple[tuple[str, int], ...]
    """``k x n`` of the products, and their device time in ns, the longest first."""


def awkward_products(line: Timeline) -> AwkwardProducts:
    """Products on 16-bit inputs whose sizes do not fit the tensor cores' tiles."""
    trace, spans = line.trace, line.trace.operators
    wanted = mask(trace.names, spans.name, PRODUCTS.__contains__)
    rows = np.flatnonzero(wanted & (spans.shapes >= 0) & (spans.types >= 0))
    keys = np.stack((spans.name[rows], spans.shapes[rows], spans.types[rows]), axis=1)
    unique, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    time = np.bincount(which.ravel(), weights=line.launched_ns[rows], minlength=len(unique))
    found: dict[str, int] = {}
    for row, ns in zip(rows[first].tolist(), time.tolist(), strict=True):
        if size := _awkward(trace, row):
            found[size] = found.get(size, 0) + int(ns)
    longest = sorted(found.items(), key=lambda item: -item[1])
    return AwkwardProducts(bool(len(rows)), tuple(longest))


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


# -- precision -------------------------------------------------------------------------------------
# The arithmetic of matrix products and convolutions, read off the names of their kernels.
#
# Names are those of cuBLAS, cuDNN, CUTLASS and nvjet (Volta to Blackwell), hipBLASLt and rocBLAS
# (``Cijk_``), MIOpen, and the attention kernels. A name says what the library chose, which is what
# ran; it is no promise of the libraries, so a name that is not known counts as "other" and is never
# judged.


HALF, TF32, FP32, FP64, FP8, OTHER = "16-bit", "tf32", "fp32", "fp64", "8-bit", "other"

_NOT_PRODUCTS = re.compile(
    r"fbgemm|embedding|compute[ab]?offset|splitkoffset|boffsets|permute_|bounds_check|scalepacked|batchnorm|bn_[fb]w|pooling"
    r"|nchwtonhwc|nhwctonchw|nccl|elementwise|reduce_kernel|splitkreduce|layer_norm|softmax_warp|dgrad_gamma"
)
_PRODUCTS = re.compile(
    r"gemm|gemv|cijk|xmma|cutlass|nvjet|wgmma|flash_(fwd|bwd)|flash::|fmha|attn_fwd|attn_bwd|fprop|dgrad|wgrad|implicit_con|scudnn"
    r"|winograd|convolve|grouped_conv|hcudnn|conv2d|dot_kernel"
)
_CIJK = re.compile(r"_(f8\w*|b8\w*|bbs|b_bs|bb|hhs|h_hs|hb|hh|hss|s_b|sb|ss|dd|db|d_b)_")
# the first that fits: "b8" before "b"
_CIJK_CLASSES = {"f": FP8, "b8": FP8, "b": HALF, "h": HALF, "s": FP32, "d": FP64}
_NVJET = re.compile(r"nvjet_(?:sm\d+_)?([a-z])")
_NVJET_CLASSES = {"h": HALF, "t": HALF, "q": FP8, "o": FP8, "e": FP8, "s": TF32, "d": FP64}
_RULES = (
    (re.compile(r"tf32"), TF32),
    (re.compile(r"e4m3|e5m2|fp8|float8"), FP8),
    (
        re.compile(
            r"bf16|fp16|f16|half|bfloat16|h884|h1688|h16816|hmma|hgemm|flash_|flash::|hcudnn"
        ),
        HALF,
    ),
    # fp32 in and out on a tensor core's tile, without a 16-bit tag: TF32 (compute capability 8.0
    # on)
    (re.compile(r"s1688|s16816"), TF32),
    (re.compile(r"dgemm|fp64|f64|double"), FP64),
    (re.compile(r"sgemm|scudnn|cgemm|float|f32|fp32|winograd|convolve|simt"), FP32),
)


@dataclass(frozen=True)
class Products:
    """Matrix products and convolutions of one arithmetic on one device."""

    arithmetic: str
    kernels: int
    ns: int
    top: tuple[tuple[str, int], ...]
    """The names with the most time, and that time in ns."""


def arithmetic(kernel: str) -> str | None:
    """Arithmetic of a kernel by its name; None if no product, convolution or attention."""
    name = kernel.lower()
    if _NOT_PRODUCTS.search(name) or not _PRODUCTS.search(name):
        return None
    if "cijk" in name:
        found = _CIJK.search(name)
        said = found[1] if found else ""
        kinds = (kind for start, kind in _CIJK_CLASSES.items() if said.startswith(start))
        return next(kinds, OTHER)
    if jet := _NVJET.search(name):
        return _NVJET_CLASSES.get(jet[1], OTHER)
    return next((kind for pattern, kind in _RULES if pattern.search(name)), OTHER)


def products(line: Timeline, use: DeviceUse) -> tuple[Products, ...]:
    """Products of a device by arithmetic, the longest first."""
    trace, work = line.trace, line.trace.work
    rows = use.rows[work.kind[use.rows] == KERNEL]
    time = ns_by_name(trace, rows)
    number = np.bincount(work.name[rows], minlength=len(trace.names))
    by_class: dict[str, list[int]] = {}
    for code in np.flatnonzero(number).tolist():
        if (kind := arithmetic(trace.names[code])) is not None:
            by_class.setdefault(kind, []).append(code)
    found = []
    for kind, codes in by_class.items():
        codes.sort(key=lambda code: -time[code])
        top = tuple((trace.names[code], int(time[code])) for code in codes[:5])
        found.append(Products(kind, int(number[codes].sum()), int(time[codes].sum()), top))
    return tuple(sorted(found, key=lambda one: -one.ns))


MATMULS = frozenset({*PRODUCTS, "aten::addmv", "aten::_addmm_activation"})


def matmul_ns(line: Timeline, use: DeviceUse) -> dict[str, int]:
    """Time of a device's matrix products (no convolutions) by arithmetic: by launching operator."""
    trace, work, tree = line.trace, line.trace.work, line.tree
    if not len(tree.name):
        return {}
    row = line.launching_operator[use.rows]
    matmul = (row >= 0) & mask(trace.names, tree.name[row], MATMULS.__contains__)
    rows = use.rows[(work.kind[use.rows] == KERNEL) & matmul]
    time = ns_by_name(trace, rows)
    found: dict[str, int] = {}
    for code in np.flatnonzero(time).tolist():
        if (kind := arithmetic(trace.names[code])) is not None:
            found[kind] = found.get(kind, 0) + int(time[code])
    return found
