"""The arithmetic of matrix products and convolutions, read off the names of their kernels.

Names are those of cuBLAS, cuDNN, CUTLASS and nvjet (Volta to Blackwell), hipBLASLt and rocBLAS
(``Cijk_``), MIOpen, and the attention kernels. A name says what the library chose, which is what
ran; it is no promise of the libraries, so a name that is not known counts as "other" and is never
judged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from auditor.timeline.device import DeviceUse, ns_by_name
from auditor.timeline.trace import KERNEL

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline

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
        return (
            next(
                (
                    kind
                    for start, kind in _CIJK_CLASSES.items()
                    if found[1].startswith(start) and (start != "b" or found[1][:2] != "b8")
                ),
                OTHER,
            )
            if found
            else OTHER
        )
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


MATMULS = frozenset(
    {
        "aten::mm",
        "aten::addmm",
        "aten::bmm",
        "aten::baddbmm",
        "aten::addmv",
        "aten::_addmm_activation",
    }
)


def matmul_ns(line: Timeline, use: DeviceUse) -> dict[str, int]:
    """Time of the matrix products (no convolutions) of a device by arithmetic: kernels that a
    product's operator launched.
    """
    trace, work, tree = line.trace, line.trace.work, line.tree
    if not len(tree.name):
        return {}
    matmul = np.fromiter((name in MATMULS for name in trace.names), np.bool_, len(trace.names))
    row = line.launching_operator[use.rows]
    rows = use.rows[
        (work.kind[use.rows] == KERNEL) & (row >= 0) & matmul[tree.name[np.maximum(row, 0)]]
    ]
    time = ns_by_name(trace, rows)
    found: dict[str, int] = {}
    for code in np.flatnonzero(time).tolist():
        if (kind := arithmetic(trace.names[code])) is not None:
            found[kind] = found.get(kind, 0) + int(time[code])
    return found
