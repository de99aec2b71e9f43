"""What a rehearsed step would ask of GPUs that are not there, in words and rows that every renderer
shows alike: intervals, and reasons where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.model import Report
from auditor.model.forecasts import Forecast, GpuForecast, HostForecast

from . import text

_REASON_LIMIT = 300
_GPU_LIMIT = 40
HEADINGS = ("GPU", "busy in a step", "MFU")
SAYS_NOTHING = "cannot say"


@dataclass(frozen=True)
class Row:
    """One GPU as it is shown. ``why`` is empty where ``busy`` is an interval."""

    gpu: str
    chosen: bool
    busy: str
    mfu: str
    why: str


def rows(report: Report, micro: str = "us") -> tuple[Row, ...]:
    """The table of GPUs, the chosen one first; none without a forecast, and none where nothing can
    be said of any of them: then a sentence says it.
    """
    found = report.forecast
    if found is None or not _known(found):
        return ()
    return tuple(_row(each, micro, chosen=not number) for number, each in enumerate(found.gpus))


def _known(found: Forecast) -> bool:
    """Whether an interval is known for any GPU."""
    return any(each.low_us is not None for each in found.gpus)


def _row(each: GpuForecast, micro: str, *, chosen: bool) -> Row:
    return Row(
        text.one_line(each.gpu, _GPU_LIMIT),
        chosen,
        busy(each, micro) or SAYS_NOTHING,
        f"at most {amounts.percent(each.mfu_at_most)}" if each.mfu_at_most is not None else "",
        "; ".join(_why(each)),
    )


def _why(each: GpuForecast) -> Iterator[str]:
    return (text.one_line(reason, _REASON_LIMIT) for reason in each.reasons)


def busy(each: GpuForecast, micro: str = "us") -> str:
    """``3.1 ms to 8.9 ms``; empty where nothing can be said."""
    if each.low_us is None or each.high_us is None:
        return ""
    low = amounts.duration(each.low_us, micro)
    return f"{low} to {amounts.duration(each.high_us, micro)}"


def sentences(report: Report, micro: str = "us") -> tuple[str, ...]:
    """What is forecast of the chosen GPU, and what that does not say; or why nothing is."""
    found = report.forecast
    return tuple(_sentences(found, micro)) if found is not None and found.gpus else ()


def brief(report: Report) -> str:
    """The first of these sentences, and where the rest stands; empty without a forecast."""
    said = sentences(report)
    if not said:
        return ""
    others = len(rows(report)) - 1
    more = (
        f" The report's page compares {amounts.count(others, 'other GPU')}." if others > 0 else ""
    )
    return said[0] + more


def unpriced(report: Report) -> tuple[str, ...]:
    """Why findings have no price, once for each reason: ``Not priced: SYNC001, SYNC003: ...``."""
    reasons: dict[str, list[str]] = {}
    for finding in report.findings:
        if finding.unpriced:
            reasons.setdefault(finding.unpriced, []).append(finding.code)
    return tuple(
        f"Not priced: {', '.join(text.one_line(code, 20) for code in dict.fromkeys(codes))}: "
        f"{text.one_line(reason, _REASON_LIMIT)}."
        for reason, codes in reasons.items()
    )


def _sentences(found: Forecast, micro: str) -> Iterator[str]:
    first = found.gpus[0]
    name = text.one_line(first.gpu, _GPU_LIMIT)
    chosen = "--gpu" if found.asked else "by default; --gpu NAME chooses another"
    if first.low_us is None:
        others = 0 if _known(found) else len(found.gpus) - 1
        more, kept = (
            (f" and {amounts.count(others, 'other GPU')}", "them") if others else ("", "it")
        )
        yield (
            f"Forecast for {name} ({chosen}){more}: cannot say how long a step would keep {kept} "
            f"busy: {'; '.join(_why(first))}."
        )
        return
    mfu = f", at most {amounts.percent(first.mfu_at_most)} MFU" if first.mfu_at_most else ""
    yield (
        f"Forecast for {name} ({chosen}): kernels would keep it busy {busy(first, micro)} in each "
        f"step{mfu}."
    )
    yield (
        f"A forecast is from the shapes of {amounts.digits(found.operators)} operators a step, not "
        f"measured: its interval is meant to hold in {amounts.percent(found.nominal)} of programs. "
        "It holds kernels alone. A step takes longer where the GPU waits for copies or for the "
        + (
            "host."
            if found.host is not None
            else "host, whose pace beside a GPU is not known here: the lower end is one of the "
            "step's time as well."
        )
    )
    if found.host is not None:
        yield _with_host(found.host, first, micro)


BOUNDS = {
    "host": "The step would be launch-bound: the host takes longer over the whole interval.",
    "device": "The GPU would set the pace: it takes longer than the host over the whole interval.",
    "": "Whether it would be launch-bound cannot be said: the two intervals overlap.",
}


def _with_host(host: HostForecast, first: GpuForecast, micro: str) -> str:
    def between(low: float | None, high: float | None) -> str:
        return f"{amounts.duration(low or 0.0, micro)} to {amounts.duration(high or 0.0, micro)}"

    scaled = f", times {amounts.digits(host.scale)} (--host-scale)" if host.scale != 1 else ""
    return (
        f"The host takes {between(host.low_us, host.high_us)} for a step (measured here in "
        f"{amounts.count(host.steps, 'step')} on the null device, with what a driver's launches may "
        f"add{scaled}). {BOUNDS[first.bound]} The GPU would be idle for "
        f"{between(first.idle_low_us, first.idle_high_us)} of a step that takes "
        f"{between(first.step_low_us, first.step_high_us)}."
    )
