"""Memory over time as a stacked chart: who holds how much, what the allocator reserves, where steps
begin.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor import amounts
from auditor.model.charts import Layers

from . import text
from .charts import HEIGHT, POINTS, WIDTH, Tick, scaled
from .pictures import Key, Picture, Shape, across, evenly, shade, short, upright

MARKS = 80
"""Lines where steps begin that are drawn at most."""

ROWS = 300
_OOM = "out of memory"


@dataclass(frozen=True)
class _Drawn:
    """What can be drawn of it: sorted points with all their values."""

    x: tuple[float, ...]
    held: tuple[tuple[float, ...], ...]
    reserved: tuple[float, ...]
    right: float
    high: float


def pictures(layers: Sequence[Layers]) -> tuple[Picture, ...]:
    """One picture a chart; those without a point are left out."""
    return tuple(
        _picture(f"memory-{number}", chart, points)
        for number, chart in enumerate(layers, 1)
        if (points := _drawn(chart))
    )


def _drawn(chart: Layers) -> _Drawn | None:
    """The points that are whole, at most as many as a chart may have."""
    count = min((len(column) for column in (chart.x, chart.reserved, *chart.held)), default=0)
    limit = max(2, POINTS // (len(chart.held) + 2))
    order = (
        sorted(range(count), key=lambda index: chart.x[index])
        if all(map(math.isfinite, chart.x[:count]))
        else []
    )
    kept = evenly(order, limit)
    if not kept or not chart.held or not chart.layers:
        return None
    x = tuple(chart.x[index] - chart.x[order[0]] for index in kept)
    held = tuple(
        tuple(max(0.0, float(column[index])) for index in kept)
        for column in chart.held[: len(chart.layers)]
    )
    reserved = tuple(max(0.0, float(chart.reserved[index])) for index in kept)
    high = max([*reserved, *(sum(column) for column in zip(*held, strict=True))])
    return _Drawn(x, held, reserved, x[-1] or 1.0, high or 1.0)


def _picture(name: str, chart: Layers, drawn: _Drawn) -> Picture:
    unit, scale = scaled("bytes", drawn.high)
    x_unit, x_scale = scaled("us", drawn.right) if chart.x_unit == "us" else ("event", 1.0)
    top = drawn.high * 1.04
    marks = [
        (x - chart.x[0], label) for x, label in chart.marks if 0 <= x - chart.x[0] <= drawn.right
    ]
    said = [text.one_line(tone.name, 200) for tone in chart.layers]
    return Picture(
        id=name,
        title=text.one_line(chart.title, 200),
        note=text.one_line(chart.note, 1000),
        unit=unit,
        x_label=f"time, {x_unit}" if chart.x_unit == "us" else "event of the history",
        said=_said(drawn),
        keys=tuple(_keys(chart, drawn, said)),
        shapes=tuple(_shapes(chart, drawn, marks, top)),
        x_ticks=across(0.0, drawn.right, scale=x_scale),
        y_ticks=tuple(Tick(1 - tick.at, tick.label) for tick in across(0.0, top, 5, scale)),
        rows=ROWS,
        thinned=_thinned(chart, drawn),
        codes=chart.codes,
        of_memory=True,
        plot={
            "kind": "layers",
            "span": [0.0, short(drawn.right / x_scale)],
            "x": [short(x / x_scale) for x in drawn.x],
            "layers": [
                {
                    "name": label,
                    "shade": shade(tone.colour),
                    "y": [short(value / scale) for value in column],
                }
                for label, tone, column in zip(said, chart.layers, drawn.held, strict=False)
            ],
            "reserved": [short(value / scale) for value in drawn.reserved],
            "marks": [
                {"x": short(x / x_scale), "label": text.one_line(label, 80)}
                for x, label in _marked(marks)
            ],
        },
    )


def _marked(marks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    steps = [mark for mark in marks if mark[1] != _OOM]
    return [*(mark for mark in marks if mark[1] == _OOM)][:MARKS] + list(evenly(steps, MARKS))


def _said(drawn: _Drawn) -> str:
    totals = [sum(column) for column in zip(*drawn.held, strict=True)]
    return (
        f"At most {amounts.size(max(totals))} in use and {amounts.size(max(drawn.reserved))} "
        f"reserved; {amounts.size(totals[-1])} in use at the end."
    )


def _keys(chart: Layers, drawn: _Drawn, names: Sequence[str]) -> Iterator[Key]:
    """Highest layer first, as the eye meets them."""
    for tone, name, column in reversed(list(zip(chart.layers, names, drawn.held, strict=False))):
        yield Key(shade(tone.colour), name, f"at most {amounts.size(max(column))}")
    yield Key(
        "reserved", "reserved by the allocator", f"at most {amounts.size(max(drawn.reserved))}"
    )
    if any(label != _OOM for _, label in chart.marks):
        yield Key("began", "a step begins")
    if any(label == _OOM for _, label in chart.marks):
        yield Key("failed", "out of memory")


def _shapes(
    chart: Layers, drawn: _Drawn, marks: Sequence[tuple[float, str]], top: float
) -> Iterator[Shape]:
    """Every layer is drawn down to the axis; the lower ones are painted over the higher."""
    totals = [0.0] * len(drawn.x)
    outlines = []
    for tone, column in zip(chart.layers, drawn.held, strict=False):
        totals = [low + value for low, value in zip(totals, column, strict=True)]
        outlines.append((shade(tone.colour), totals))
    for name, outline in reversed(outlines):
        yield Shape(f"fill {name}", f"M0 {HEIGHT}{_stairs(drawn, outline, top)}V{HEIGHT}z")
    stairs = _stairs(drawn, drawn.reserved, top)
    yield Shape("reserved", "M" + stairs[1:].replace("V", " ", 1))
    chosen = _marked(marks)
    began = [x / drawn.right for x, label in chosen if label != _OOM]
    failed = [x / drawn.right for x, label in chosen if label == _OOM]
    for name, places in (("began", began), ("failed", failed)):
        if places:
            yield Shape(name, upright(places))


def _stairs(drawn: _Drawn, heights: Sequence[float], top: float) -> str:
    """``H…V…`` through the points: memory stays what it is until the next event."""
    steps = (
        f"H{x / drawn.right * WIDTH:.1f}V{(1 - y / top) * HEIGHT:.1f}"
        for x, y in zip(drawn.x, heights, strict=True)
    )
    return "".join(steps) + f"H{WIDTH}"


def _thinned(chart: Layers, drawn: _Drawn) -> str:
    if chart.events <= len(drawn.x):
        return ""
    return (
        f"{chart.events:,} events, drawn at {len(drawn.x):,} of them: the highest and the lowest of "
        "each stretch, so that no peak is lost."
    )
