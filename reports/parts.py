"""What the steps are made of, drawn: a row of bars for each side of a step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from auditor import amounts
from auditor.model.charts import Bar, Parts

from . import text
from .charts import POINTS, Tick, scaled
from .pictures import Key, Picture, Shape, across, box, shade, short

ROWS = 60
"""Rows that are drawn at most."""

HEIGHT = 34
"""Of a row, in px."""
_FILLED = 0.78
"""Share of a row's height that its bars take."""


def picture(chart: Parts) -> Picture | None:
    """The picture; None where nothing of it can be drawn."""
    bars = _valid(chart)
    if not bars:
        return None
    right = max(bar.start + bar.length for bar in bars)
    unit, scale = scaled("us", right)
    names = [text.one_line(name, 60) for name in chart.rows[:ROWS]]
    bodies = [_body(bar, chart, scale) for bar in bars]
    return Picture(
        id="parts",
        title=text.one_line(chart.title, 200),
        note=text.one_line(chart.note, 1000),
        unit=unit,
        x_label=f"time, {unit}",
        said="",
        keys=tuple(_keys(chart, bars)),
        shapes=tuple(_shapes(bodies, len(names), right / scale)),
        x_ticks=across(0.0, right, scale=scale),
        y_ticks=tuple(Tick((row + 0.5) / len(names), label) for row, label in enumerate(names)),
        rows=max(70, HEIGHT * len(names)),
        thinned="",
        codes=chart.codes,
        plot={
            "kind": "parts",
            "names": names,
            "right": right / scale,
            "span": [0.0, short(right / scale)],
            "groups": list(_groups(bodies)),
        },
    )


def _valid(chart: Parts) -> list[Bar]:
    """Bars that can be drawn: inside the rows, of a known tone, with finite numbers."""
    count = min(len(chart.rows), ROWS)
    fit = (bar for bar in chart.bars if 0 <= bar.row < count and 0 <= bar.tone < len(chart.tones))
    good = [
        bar
        for bar in fit
        if math.isfinite(bar.start + bar.length) and bar.start >= 0 and bar.length > 0
    ]
    return sorted(good[:POINTS], key=lambda bar: (bar.row, bar.start))


Body = tuple[str, str, int, float, float, str]
"""Shade, name of the tone, row, start and length in the shown unit, label."""


def _body(bar: Bar, chart: Parts, scale: float) -> Body:
    tone, amount = chart.tones[bar.tone], amounts.duration(bar.length, "µs")
    label = f"{text.one_line(bar.label, 120)}, {amount}" if bar.label else amount
    place = (short(bar.start / scale), short(bar.length / scale))
    return (shade(tone.colour), text.one_line(tone.name, 200), bar.row, *place, label)


def _keys(chart: Parts, bars: Sequence[Bar]) -> Iterator[Key]:
    """With the times of the mean step, whose rows come first."""
    sums = [0.0] * len(chart.tones)
    for bar in bars:
        if chart.rows[bar.row].startswith(chart.rows[0].partition(":")[0]):
            sums[bar.tone] += bar.length
    for number, (tone, total) in enumerate(zip(chart.tones, sums, strict=True)):
        if any(bar.tone == number for bar in bars):
            amount = f"{amounts.duration(total, 'µs')} a step"
            yield Key(shade(tone.colour), text.one_line(tone.name, 200), amount)


def _shapes(bodies: Sequence[Body], rows: int, right: float) -> Iterator[Shape]:
    height = 1 / rows
    paths: dict[str, list[str]] = {}
    for name, _, row, start, length, _ in bodies:
        top = (row + (1 - _FILLED) / 2) * height
        paths.setdefault(name, []).append(box(start / right, top, length / right, height * _FILLED))
    for name, parts in paths.items():
        yield Shape(f"fill {name}", "".join(parts))


def _groups(bodies: Sequence[Body]) -> Iterator[dict[str, object]]:
    """Bars by colour, as plotly draws them fastest."""
    named: dict[tuple[str, str], list[Body]] = {}
    for body in bodies:
        named.setdefault(body[:2], []).append(body)
    for (colour, name), group in named.items():
        yield {
            "shade": colour,
            "name": name,
            "row": [body[2] for body in group],
            "base": [body[3] for body in group],
            "length": [body[4] for body in group],
            "label": [body[5] for body in group],
        }
