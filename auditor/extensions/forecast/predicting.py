"""Times of counted calls on one GPU, from fitted numbers and its data sheet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auditor.extensions.forecast import kinds
from auditor.extensions.forecast.classes import ClassNumbers, Work, class_us
from auditor.extensions.forecast.coefficients import ANY, LEAST_GROUPS, MOST_ERROR, Coefficients
from auditor.extensions.forecast.counted import FP8, FP32, HALF, TF32, Counts
from auditor.extensions.forecast.data_sheets import DataSheet
from auditor.extensions.forecast.matmul import MatmulNumbers, Products, matmul_us

Floats = NDArray[np.float64]

ALIKE = {"A100-40GB": "A100-80GB"}
"""Models of one chip: the numbers of the other, with the own bandwidth."""

_TENSOR_CORES = frozenset({HALF, TF32, FP8})


def matmul_numbers(found: Coefficients, arithmetic: str, sheet: DataSheet) -> MatmulNumbers:
    """The six numbers of a model, of its maker's models, or of all."""
    table = found.matmul[HALF if arithmetic in _TENSOR_CORES else FP32]
    key = ALIKE.get(sheet.key, sheet.key)
    for each in (key, f"{ANY} {sheet.vendor}"):
        if each in table:
            return table[each].numbers
    return table[ANY].numbers


def matmul_fitted(found: Coefficients, sheet: DataSheet) -> bool:
    """Whether 16-bit products were fitted on this model."""
    return ALIKE.get(sheet.key, sheet.key) in found.matmul[HALF]


def class_numbers(found: Coefficients, kind: str, sheet: DataSheet) -> tuple[ClassNumbers, bool]:
    """The five numbers of a class, and whether they serve it on this maker's GPUs; where there are
    none, those of a class like it, or of the other maker, stand in.
    """
    stand_in = kinds.CONV if kind in {kinds.CONV_UNKNOWN, kinds.CONV_BACKWARD} else kinds.POINTWISE
    for each in (kind, stand_in, kinds.POINTWISE):
        fits = found.classes.get(each, {})
        if sheet.vendor in fits:
            fit = fits[sheet.vendor]
            judged = fit.groups >= LEAST_GROUPS and fit.error <= MOST_ERROR
            return fit.numbers, judged and each == kind and kind not in kinds.NEVER_FITTED
    return next(iter(found.classes[kinds.POINTWISE].values())).numbers, False


def kind_fitted(found: Coefficients, kind: str, sheet: DataSheet) -> bool:
    """Whether a class counts as covered on a GPU."""
    if kind == kinds.MATMUL:
        return True
    return class_numbers(found, kind, sheet)[1]


def flops_of(counts: Counts, sheet: DataSheet) -> float:
    """FLOPs as a GPU computes them: without tensor cores an algorithm may need fewer."""
    vector = sheet.peak(counts.arithmetic) <= sheet.fp32
    return counts.vector_flops if vector and counts.vector_flops else counts.flops


def roofline_us(counts: Sequence[Counts], sheet: DataSheet) -> Floats:
    """The least times that the data sheet allows."""
    return np.array(
        [sheet.roofline_us(flops_of(each, sheet), each.bytes, each.arithmetic) for each in counts],
        float,
    )


def predicted_us(counts: Sequence[Counts], sheet: DataSheet, found: Coefficients) -> Floats:
    """Times of one call each, never below the data sheet's; 0 where no kernel starts."""
    told = np.zeros(len(counts))
    rows: dict[tuple[str, str], list[int]] = {}
    for row, each in enumerate(counts):
        if each.kernels:
            tensor_cores = each.arithmetic in _TENSOR_CORES
            kept = HALF if tensor_cores else FP32
            rows.setdefault((each.kind, kept if each.product else ""), []).append(row)
    for (kind, arithmetic), chosen in rows.items():
        some = [counts[row] for row in chosen]
        if arithmetic:
            told[chosen] = matmul_us(
                matmul_numbers(found, arithmetic, sheet),
                products_of(some, sheet),
                found.unaligned.get(sheet.generation, 1.0),
            )
        else:
            told[chosen] = class_us(class_numbers(found, kind, sheet)[0], work_of(some, sheet))
    started = np.array([each.kernels > 0 for each in counts], bool)
    return np.where(started, np.maximum(told, roofline_us(counts, sheet)), 0.0)


def products_of(counts: Sequence[Counts], sheet: DataSheet) -> Products:
    """Columns for :func:`matmul_us`."""
    sizes = np.array([each.product for each in counts], float).reshape(-1, 4)
    batch, rows, columns, depth = sizes.T
    item = np.array([2.0 if each.arithmetic == HALF else 4.0 for each in counts])
    return Products(
        batch=batch,
        rows=rows,
        columns=columns,
        depth=depth,
        item_bytes=item,
        **_columns(counts, sheet),
    )


def work_of(counts: Sequence[Counts], sheet: DataSheet) -> Work:
    """Columns for :func:`class_us`."""
    return Work(
        flops=np.array([flops_of(each, sheet) / each.tile_share for each in counts], float),
        kernels=np.array([each.kernels for each in counts], float),
        **_columns(counts, sheet),
    )


def _columns(counts: Sequence[Counts], sheet: DataSheet) -> dict[str, Any]:
    number = len(counts)
    return {
        "bytes": np.array([each.bytes for each in counts], float),
        "peak": np.array([sheet.peak(each.arithmetic) for each in counts], float) / 1e6,
        "bandwidth": np.full(number, sheet.bandwidth / 1e6),
        "l2_bytes": np.full(number, float(sheet.l2_bytes)),
        "processors": np.full(number, float(sheet.processors)),
    }
