"""Busy time of a GPU over the calls of a step: an interval, or why none can be given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from auditor.extensions.forecast import kinds
from auditor.extensions.forecast.calls import Call
from auditor.extensions.forecast.coefficients import Coefficients, coefficients
from auditor.extensions.forecast.counted import Counts
from auditor.extensions.forecast.counts import count
from auditor.extensions.forecast.data_sheets import sheet_of
from auditor.extensions.forecast.intervals import NOMINAL
from auditor.extensions.forecast.predicting import (
    kind_fitted,
    matmul_fitted,
    predicted_us,
    roofline_us,
)

Floats = NDArray[np.float64]

MOST_UNFITTED = 0.2
"""Share of the predicted time in classes that are not fitted, above which nothing is said."""
LEAST_US = 1000.0
"""Busy time below which nothing is said: there the floors of kernels decide."""
_UNCOUNTED = Counts(kinds.IRREGULAR)
"""Stands for a call whose shapes do not tell: a kernel that does next to nothing, not fitted."""


@dataclass(frozen=True)
class KindShare:
    """What one class of operators takes of the predicted time."""

    kind: str
    share: float
    calls: int
    fitted: bool


@dataclass(frozen=True)
class Forecast:
    """Busy time of a GPU."""

    gpu: str
    fitted: bool
    """Whether products were fitted on this model; if not, its data sheet speaks and the interval is
    twice as wide.
    """
    lower_us: float | None
    upper_us: float | None
    """None where :attr:`reasons` say why nothing can be said."""
    covered: float
    """Share of the predicted time in classes that are fitted."""
    kinds: tuple[KindShare, ...]
    """The longest first."""
    reasons: tuple[str, ...]
    """Why nothing can be said; empty otherwise."""
    flops: float = 0.0
    """Of products, convolutions and attention, in a step."""
    mfu_at_most: float | None = None
    """:attr:`flops` over what the peak of 16-bit products would do in :attr:`lower_us`."""
    nominal: float = NOMINAL
    """How often the interval is meant to hold."""


def forecast(
    calls: Sequence[Call],
    gpu: str,
    *,
    steps: int = 1,
    tf32_matmul: bool = False,
    tf32_conv: bool = True,
    numbers: Coefficients | None = None,
) -> Forecast:
    """Predicted busy time of one stream on a GPU (a key of :data:`data_sheets.SHEETS`, or a
    driver's name), as an interval. ``calls`` are those of so many ``steps``, times of one.
    """
    sheet, found = sheet_of(gpu), numbers or coefficients()
    counted = [count(call, tf32_matmul=tf32_matmul, tf32_conv=tf32_conv) for call in calls]
    counts = [each or _UNCOUNTED for each in counted]
    times = np.array([call.times for call in calls], float) / steps
    us = predicted_us(counts, sheet, found) * times
    total = float(us.sum())
    shares = _shares(calls, counts, us, lambda kind: kind_fitted(found, kind, sheet))
    covered = sum(each.share for each in shares if each.fitted)
    reasons = tuple(_reasons(shares, total, covered))
    fitted = matmul_fitted(found, sheet)
    spread = found.spread if fitted else found.spread.doubled()
    lower = max(total * spread.lower, float((roofline_us(counts, sheet) * times).sum()))
    flops = float((np.array([each.flops for each in counts]) * times).sum())
    told = not reasons and lower > 0
    return Forecast(
        gpu=sheet.key,
        fitted=fitted,
        lower_us=None if reasons else lower,
        upper_us=None if reasons else max(total * spread.upper, lower),
        covered=covered,
        kinds=shares,
        reasons=reasons,
        flops=flops,
        mfu_at_most=min(1.0, flops / (lower * 1e-6 * sheet.half)) if told else None,
    )


@dataclass(frozen=True)
class Part:
    """Busy time of some operators of a step."""

    covered: float
    lower_us: float
    upper_us: float


def parts_us(
    calls: Sequence[Call],
    gpu: str,
    *,
    steps: int = 1,
    tf32_matmul: bool = False,
    tf32_conv: bool = True,
) -> Part:
    """Of a few calls of a step of which :func:`forecast` says something. Errors of single operators
    are larger than those of a step, in which they level out: the interval is twice as wide, as
    ratios count, and it never begins below the data sheet.
    """
    sheet, found = sheet_of(gpu), coefficients()
    counted = [count(call, tf32_matmul=tf32_matmul, tf32_conv=tf32_conv) for call in calls]
    counts = [each or _UNCOUNTED for each in counted]
    times = np.array([call.times for call in calls], float) / steps
    us = predicted_us(counts, sheet, found) * times
    shares = _shares(calls, counts, us, lambda kind: kind_fitted(found, kind, sheet))
    spread = found.spread if matmul_fitted(found, sheet) else found.spread.doubled()
    wide, total = spread.doubled(), float(us.sum())
    lower = max(total * wide.lower, float((roofline_us(counts, sheet) * times).sum()))
    covered = sum(each.share for each in shares if each.fitted)
    return Part(covered, lower, max(total * wide.upper, lower))


def kernel_us(
    calls: Sequence[Call],
    gpu: str,
    *,
    tf32_matmul: bool = False,
    tf32_conv: bool = True,
    numbers: Coefficients | None = None,
) -> Floats:
    """Predicted time of each call once, for a replay that needs a length for each kernel. Nothing
    of it is printed: what people read is :func:`forecast`'s interval.
    """
    counted = [count(call, tf32_matmul=tf32_matmul, tf32_conv=tf32_conv) for call in calls]
    counts = [each or _UNCOUNTED for each in counted]
    return predicted_us(counts, sheet_of(gpu), numbers or coefficients())


def _shares(
    calls: Sequence[Call], counts: Sequence[Counts], us: Floats, fitted: Callable[[str], bool]
) -> tuple[KindShare, ...]:
    total = float(us.sum()) or 1.0
    by_kind: dict[str, tuple[float, int]] = {}
    for call, each, time in zip(calls, counts, us.tolist(), strict=True):
        if each.kind in {kinds.NOTHING, kinds.TRANSFER}:
            continue
        before, number = by_kind.get(each.kind, (0.0, 0))
        by_kind[each.kind] = before + time, number + call.times
    return tuple(
        KindShare(kind, time / total, number, _starts_known(kind) and fitted(kind))
        for kind, (time, number) in sorted(by_kind.items(), key=lambda item: -item[1][0])
    )


def _starts_known(kind: str) -> bool:
    return kind not in {kinds.COLLECTIVE, kinds.CUSTOM}


def _reasons(shares: Sequence[KindShare], total: float, covered: float) -> Iterator[str]:
    """Why an interval would promise too much."""
    number = {each.kind: each.calls for each in shares}
    if custom := number.get(kinds.CUSTOM):
        yield f"compiled or custom kernels ({custom} calls): what they do is not in their shapes"
    if collectives := number.get(kinds.COLLECTIVE):
        yield f"several GPUs ({collectives} collectives): the others are not predicted"
    if total < LEAST_US:
        yield "less than 1 ms of busy time: the floors of kernels decide there"
    elif 1 - covered > MOST_UNFITTED:
        named = ", ".join(each.kind for each in shares if not each.fitted and each.share > 0.01)
        yield f"{1 - covered:.1%} of the predicted time is in classes that are not fitted ({named})"
