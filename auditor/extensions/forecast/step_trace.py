"""The forecast of a step as a trace for viewers (Perfetto, Catapult): the operators in the order in
which they ran, as long as they are predicted to keep the GPU busy, under the user's lines.

Nothing in it was measured, and every event says so. The host has no times in it: a line lies over
the operators that ran for it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from auditor.errors import fault
from auditor.evidence.recorded.operators import OrderedOperators, RanOperators
from auditor.evidence.table import Evidence
from auditor.extensions.forecast.data_sheets import sheet_of
from auditor.extensions.forecast.model import LOWER, UPPER, call_us
from auditor.extensions.forecast.step import rehearsal_of, step_of
from auditor.model.forecasts import CATEGORY, MARK, Forecast
from auditor.rule import NotLooked

PROCESS, LINES, GPU = 1, 0, 1
NO_LINE = "no line of the program"


@dataclass(frozen=True)
class _Slice:
    """An operator of the step: what it is, where it stands, and what it is predicted to take."""

    name: str
    line: str
    us: float
    sizes: str


def trace(evidence: Evidence, forecast: Forecast | None, faults: list[str]) -> bytes | None:
    """Gzipped JSON in the format of Chrome's traces, of the step of median length; None where
    nothing is forecast. It never costs the report: where it fails, what happened is added to
    ``faults``.
    """
    rehearsed = rehearsal_of(evidence)
    chosen = forecast.gpus[0] if forecast is not None and forecast.gpus else None
    if rehearsed is None or chosen is None or chosen.low_us is None:
        return None
    try:
        step = _step(rehearsed, chosen.gpu)
    except NotLooked:
        return None
    except Exception as error:
        faults.append(f"the forecast cannot be written as a trace: {fault(error)}")
        return None
    text = json.dumps(_document(step, chosen.gpu), separators=(",", ":"))
    return gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)


def _step(rehearsed: Evidence, gpu: str) -> list[_Slice]:
    """The operators of the step of median length."""
    order, sheet = rehearsed.get(OrderedOperators), sheet_of(gpu)
    described = order.described
    counted = step_of(rehearsed.get(RanOperators), ((row, 1) for row in described.values()), 1)
    us = dict(zip(described, (call_us(each.counts, sheet) for each in counted), strict=True))
    lengths = [sum(us.get(number, 0.0) for number, _ in step) for step in order.steps]
    if not order.whole or not any(lengths):
        raise NotLooked("the order of a step's operators is not whole")
    middle = sorted(range(len(lengths)), key=lengths.__getitem__)[len(lengths) // 2]
    return [
        _Slice(
            described[number].name,
            NO_LINE if site is None else f"{site.file}:{site.line}",
            us[number],
            _sizes(described[number]),
        )
        for number, site in order.steps[middle]
        if us.get(number, 0.0) > 0
    ]


def _sizes(row: Any) -> str:
    """``[64, 128] [128, 32]``: shapes of what it was given."""
    shapes = (each.shape if each.sizes is None else each.sizes[:8] for each in row.inputs if each)
    return " ".join(str(list(shape)) for shape in shapes if shape is not None)


def _document(step: Sequence[_Slice], gpu: str) -> dict[str, Any]:
    return {
        MARK: gpu,
        "forecast": (
            f"Not measured: lengths are forecast for {gpu} from the operators' shapes. "
            "The host's times are not known and not shown; the step takes longer than this."
        ),
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "traceEvents": [*_names(gpu), *_events(step, gpu)],
    }


def _names(gpu: str) -> Iterator[dict[str, Any]]:
    told = {"forecast": True, "gpu": gpu}
    names = ((LINES, "lines of the program, in order (no host times)"), (GPU, f"{gpu} (forecast)"))
    yield {
        "ph": "M",
        "name": "process_name",
        "pid": PROCESS,
        "args": {"name": f"forecast for {gpu}, not measured", **told},
    }
    for thread, name in names:
        place = {"pid": PROCESS, "tid": thread}
        yield {"ph": "M", "name": "thread_name", **place, "args": {"name": name, **told}}
        yield {
            "ph": "M",
            "name": "thread_sort_index",
            **place,
            "args": {"sort_index": thread, **told},
        }


def _events(step: Sequence[_Slice], gpu: str) -> Iterator[dict[str, Any]]:
    def event(thread: int, name: str, at: float, us: float, **more: Any) -> dict[str, Any]:
        interval = {"low_us": round(us * LOWER**2, 3), "high_us": round(us * UPPER**2, 3)}
        return {
            "ph": "X",
            "cat": CATEGORY,
            "name": name,
            "pid": PROCESS,
            "tid": thread,
            "ts": round(at, 3),
            "dur": round(us, 3),
            "args": {"forecast": True, "gpu": gpu, **interval, **more},
        }

    now, line, since = 0.0, "", 0.0
    for each in step:
        if each.line != line:
            if line:
                yield event(LINES, line, since, now - since, line=line)
            line, since = each.line, now
        yield event(GPU, each.name, now, each.us, line=each.line, inputs=each.sizes)
        now += each.us
    if line:
        yield event(LINES, line, since, now - since, line=line)
