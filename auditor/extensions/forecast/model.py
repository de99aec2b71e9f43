"""Busy time of a GPU over the calls of a step: an interval, or why none can be given.

A kernel takes a floor and the longer of its FLOPs over a share of the peak and its bytes over a
share of the bandwidth. Classes of operators have a floor and shares of their own, the same on every
GPU (products: of a maker): its data sheet is what tells GPUs apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from auditor.extensions.forecast.counts import (
    ATTENTION,
    COLLECTIVE,
    CONV,
    MEMORY,
    PRODUCT,
    UNKNOWN,
    Call,
    Counts,
    count,
)
from auditor.extensions.forecast.data_sheets import DataSheet, sheet_of
from auditor.model.forecasts import GpuForecast


@dataclass(frozen=True)
class Rates:
    """How fast a class of operators is."""

    floor_us: float
    """A kernel that does next to nothing."""
    compute: float
    """Share of the data sheet's peak FLOP/s."""
    memory: float
    """Share of its bandwidth."""


AMD = "matrix products on AMD"
"""Of makers' peaks AMD's GPUs reach a smaller share."""
RATES = {
    PRODUCT: Rates(7.58, 0.737, 0.641),
    AMD: Rates(9.84, 0.417, 0.381),
    ATTENTION: Rates(16.6, 0.219, 0.269),
    CONV: Rates(25.0, 0.804, 0.175),
    MEMORY: Rates(5.16, 0.4, 0.809),
}
"""Fitted by ``benchmarks/forecast_fit.py`` (docs/forecast.md)."""
LOWER, UPPER = 0.618, 1.795
"""Ends of the interval, as factors of what is predicted. Each group of recordings was left out of
the fit that judged it and gave one ratio of measured to predicted time: of n such ratios, the k-th
smallest and the k-th largest hold one more with probability 1 - 2k/(n + 1) (conformal prediction),
whatever their distribution.
"""
NOMINAL = 0.8
"""How often the interval is meant to hold."""
_WINOGRAD = 4.0
"""How many times fewer multiplications F(4x4, 3x3) needs (arXiv 1509.09308): without tensor cores a
convolution may beat the data sheet by as much.
"""


def rated(counts: Counts, sheet: DataSheet) -> str:
    """The class whose rates a call has on a GPU."""
    return AMD if counts.kind == PRODUCT and sheet.amd else counts.kind


def call_us(counts: Counts, sheet: DataSheet, table: Mapping[str, Rates] = RATES) -> float:
    """Time of one call in us; 0 where no kernel starts."""
    if not counts.kernels:
        return 0.0
    rates = table[rated(counts, sheet)]
    compute = counts.flops / (sheet.peak(counts.arithmetic) * rates.compute)
    moved = counts.bytes / (sheet.bandwidth * rates.memory)
    return rates.floor_us * counts.kernels + max(compute, moved) * 1e6


def least_us(counts: Counts, sheet: DataSheet) -> float:
    """The least time that the data sheet allows, in us. Bytes that fit into the L2 may be there
    already, so they cost nothing here.
    """
    if not counts.kernels:
        return 0.0
    peak = sheet.peak(counts.arithmetic)
    fewer = _WINOGRAD if counts.kind == CONV and peak <= sheet.fp32 else 1.0
    moved = counts.bytes / sheet.bandwidth if counts.bytes > sheet.l2_bytes else 0.0
    return max(counts.flops / fewer / peak, moved) * 1e6


@dataclass(frozen=True)
class Ran:
    """A call as often as it runs in a step."""

    name: str
    counts: Counts
    times: float


def counted(
    calls: Iterable[Call], *, steps: int = 1, tf32_matmul: bool = False, tf32_conv: bool = True
) -> tuple[Ran, ...]:
    """What the calls of so many steps cost in one."""
    return tuple(
        Ran(
            call.name, count(call, tf32_matmul=tf32_matmul, tf32_conv=tf32_conv), call.times / steps
        )
        for call in calls
    )


def flops_of(step: Iterable[Ran]) -> float:
    """Of products, convolutions and attention."""
    return sum(each.counts.flops * each.times for each in step)


def forecast(step: Sequence[Ran], gpu: str) -> GpuForecast:
    """Predicted busy time of one stream on a GPU (a key of :data:`data_sheets.SHEETS`, or a
    driver's name), as an interval in us, or why there is none.
    """
    sheet = sheet_of(gpu)
    if reasons := tuple(_reasons(step)):
        return GpuForecast(sheet.key, reasons=reasons)
    low, high = _between(step, sheet, LOWER, UPPER)
    most = flops_of(step) / (low * 1e-6 * sheet.half)
    return GpuForecast(sheet.key, low, high, min(1.0, most))


def shares(step: Sequence[Ran], gpu: str) -> list[tuple[str, float]]:
    """Of classes in the predicted time, the longest first."""
    sheet = sheet_of(gpu)
    times: dict[str, float] = defaultdict(float)
    for each in step:
        times[each.counts.kind] += call_us(each.counts, sheet) * each.times
    total = sum(times.values())
    found = [(kind, us / total) for kind, us in times.items() if us]
    return sorted(found, key=lambda each: -each[1])


def part_us(step: Sequence[Ran], gpu: str) -> tuple[float, float] | None:
    """Of a few calls of a step: an interval in us, or None where what one of them does is not known.
    Errors of single operators are larger than those of a step, in which they level out: the
    interval is twice as wide, as ratios count.
    """
    if any(_reasons(step)):
        return None
    return _between(step, sheet_of(gpu), LOWER**2, UPPER**2)


def _between(
    step: Iterable[Ran], sheet: DataSheet, lower: float, upper: float
) -> tuple[float, float]:
    """The interval around what is predicted, never below the data sheet."""
    us = sum(call_us(each.counts, sheet) * each.times for each in step)
    least = sum(least_us(each.counts, sheet) * each.times for each in step)
    return max(us * lower, least), max(us * upper, least)


_NAMED = 3
"""Operators that a reason names at most."""


def _reasons(step: Iterable[Ran]) -> Iterator[str]:
    """Why an interval would promise too much."""
    kinds = Counter[str]()
    names: dict[str, None] = {}
    for each in step:
        kinds[each.counts.kind] += each.counts.kernels
        if each.counts.kind == UNKNOWN:
            names[each.name] = None
    if names:
        more = ", ..." if len(names) > _NAMED else ""
        yield f"the work of {', '.join([*names][:_NAMED])}{more} does not follow from shapes"
    if COLLECTIVE in kinds:
        yield "several GPUs: what the others do is not predicted"
    if not names and not kinds.total():
        yield "no operator starts a kernel"
