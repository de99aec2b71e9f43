"""Plots as geometry: points thinned, extremes kept, as plain SVG and as data for the scripts."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from auditor import amounts
from auditor.model.charts import Bar, Layers, Parts, Series

from . import text

POINTS = 5000
"""Points that one chart hands to scripts at most: 50k SVG points paint in 4.7 s."""

DRAWN = 1200
"""Points of one chart's SVG at most: as many columns as a wide screen has for it."""

WIDTH, HEIGHT = 1000, 300
"""Units of the SVG's view box; the page stretches it to the space there is."""

COLOURS = 6
"""Line colours that the style sheet knows; later lines use them again with another dash."""

_TITLES = {"us": "Step time", "bytes": "Memory"}
_CODES = {"us": ("TIME",), "bytes": ("MEM",)}
_US = (("µs", 1.0), ("ms", 1e3), ("s", 1e6))
_BYTES = (("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30), ("TiB", 2.0**40))
_DASHES = (("solid", ""), ("dash", "9 4"), ("dot", "2 4"), ("dashdot", "9 4 2 4"))

Point = tuple[float, "float | None"]


@dataclass(frozen=True)
class Ended:
    """The step that did not complete: where it is drawn (0 to 1 from the left), and by what."""

    x: float
    left: float
    label: str


@dataclass(frozen=True)
class Line:
    """One series in the chart's unit. ``points`` for scripts to zoom; ``drawn`` for the SVG."""

    name: str
    colour: int
    dash: str
    pattern: str
    points: tuple[Point, ...]
    drawn: tuple[Point, ...]
    path: str


@dataclass(frozen=True)
class Tick:
    """A label at ``at`` of the axis (0 to 1)."""

    at: float
    label: str


@dataclass(frozen=True)
class Chart:
    """All series of one unit."""

    id: str
    title: str
    unit: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    total: int
    codes: tuple[str, ...] = ()
    """Rules and families whose findings can be seen in it."""
    across: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest x of the picture."""
    up: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest y of the picture."""
    ended: Ended | None = None

    @property
    def kept(self) -> int:
        """Points left after thinning."""
        return sum(len(line.points) for line in self.lines)

    @property
    def drawn(self) -> int:
        """Points of the SVG."""
        return sum(len(line.drawn) for line in self.lines)

    def data(self) -> dict[str, Any]:
        """What the page's scripts need: to tell its values, to zoom, to draw it with plotly."""
        ended = {"x": self.ended.x, "label": self.ended.label} if self.ended is not None else None
        return {
            "id": self.id,
            "kind": "lines",
            "unit": self.unit,
            "span": self.across,
            "rise": self.up,
            "lines": [_data(line) for line in self.lines],
            "ended": ended,
        }


def charts(series: Sequence[Series]) -> tuple[Chart, ...]:
    """A chart for each unit with two finite points in a series, in order of first appearance."""
    by_unit: dict[str, list[Series]] = {}
    for line in series:
        if (
            sum(math.isfinite(y) and math.isfinite(x) for x, y in zip(line.x, line.y, strict=False))
            > 1
        ):  # one is no course
            by_unit.setdefault(line.unit, []).append(line)
    return tuple(
        _chart(f"chart-{number}", unit, lines)
        for number, (unit, lines) in enumerate(by_unit.items(), 1)
    )


def thinned(points: Sequence[Point], limit: int) -> tuple[Point, ...]:
    """At most ``limit`` points (6 or more): the first, the last, and the smallest and the largest
    of each stretch between.

    So no outlier is lost and none is invented; only points between the extremes are left out.
    """
    if len(points) <= limit:
        return tuple(points)
    inner = points[1:-1]
    stretches = (limit - 2) // 2
    kept = [points[0]]
    for number in range(stretches):
        start, end = number * len(inner) // stretches, (number + 1) * len(inner) // stretches
        kept.extend(_extremes(inner[start:end]))
    return (*kept, points[-1])


def _extremes(stretch: Sequence[Point]) -> Iterator[Point]:
    known = [(y, index) for index, (_, y) in enumerate(stretch) if y is not None]
    if not known:
        yield stretch[0]
        return
    for index in sorted({min(known)[1], max(known)[1]}):
        yield stretch[index]


def ticks(low: float, high: float, about: int) -> tuple[float, ...]:
    """About ``about`` round numbers (1, 2 or 5 times a power of ten) from ``low`` to ``high``."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return (low,)
    rough = span / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((nice * power for nice in (1, 2, 5) if nice * power >= rough), 10 * power)
    first = math.ceil(low / step - 1e-9)
    return tuple(step * number for number in range(first, math.floor(high / step + 1e-9) + 1))


@dataclass(frozen=True)
class _Frame:
    """The chart's window: x from ``left`` to ``right``, y from zero (or below) to ``high``."""

    left: float
    right: float
    low: float
    high: float

    def across(self, x: float) -> float:
        return (x - self.left) / (self.right - self.left)

    def down(self, y: float) -> float:
        return 1 - (y - self.low) / (self.high - self.low)


def _chart(name: str, unit: str, series: Sequence[Series]) -> Chart:
    shown_unit, scale = scaled(
        unit, max(abs(y) for line in series for y in line.y if math.isfinite(y))
    )
    points = [_points(line, scale) for line in series]
    ended = next(
        (line.ended for line in series if line.ended is not None and math.isfinite(line.ended[0])),
        None,
    )
    frame = _frame(
        [
            *(point for line in points for point in line),
            *([(ended[0], None)] if ended is not None else []),
        ]
    )
    lines = tuple(
        _line(number, line, points[number], frame, len(series))
        for number, line in enumerate(series)
    )
    return Chart(
        id=name,
        title=_TITLES.get(unit, text.one_line(unit, 80)),
        unit=shown_unit,
        lines=lines,
        x_ticks=tuple(
            Tick(frame.across(x), amounts.digits(x))
            for x in ticks(frame.left, frame.right, 8)
            if x == int(x)
        ),
        y_ticks=tuple(
            Tick(frame.down(y), amounts.digits(y)) for y in ticks(frame.low, frame.high, 4)
        ),
        total=sum(len(line) for line in points),
        codes=_CODES.get(unit, ()),
        across=(frame.left, frame.right),
        up=(frame.low, frame.high),
        ended=Ended(ended[0], frame.across(ended[0]), text.one_line(ended[1], 200))
        if ended is not None
        else None,
    )


def scaled(unit: str, largest: float) -> tuple[str, float]:
    """The unit in which ``largest`` (of ``us`` or ``bytes``) reads well, in units of ``unit``."""
    steps = {"us": _US, "bytes": _BYTES}.get(unit)
    if steps is None:
        return text.one_line(unit, 40), 1.0
    return next((step for step in reversed(steps) if largest >= step[1]), steps[0])


def _points(line: Series, scale: float) -> list[Point]:
    """Finite x only; a y that is not finite is a gap, and what has no partner is left out."""
    pairs = zip(line.x, line.y, strict=False)
    return [
        (x, float(f"{y / scale:.6g}") if math.isfinite(y) else None)
        for x, y in pairs
        if math.isfinite(x)
    ]


def _frame(points: Sequence[Point]) -> _Frame:
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    if left == right:
        left, right = left - 0.5, right + 0.5
    heights = [y for _, y in points if y is not None]
    low, high = min(0.0, *heights), max(0.0, *heights)
    return _Frame(left, right, low, high + (high - low) * 0.06 if high > low else low + 1.0)


def _line(number: int, series: Series, points: list[Point], frame: _Frame, of: int) -> Line:
    drawn = thinned(points, max(6, DRAWN // of))
    dash, pattern = (
        _DASHES[number // COLOURS % len(_DASHES)]
        if of > COLOURS
        else _DASHES[number % len(_DASHES)]
    )
    return Line(
        name=text.one_line(series.name, 80),
        colour=number % COLOURS,
        dash=dash,
        pattern=pattern,
        points=thinned(points, max(6, POINTS // of)),
        drawn=drawn,
        path=_path(drawn, frame),
    )


def _path(points: Sequence[Point], frame: _Frame) -> str:
    """SVG path data; a gap lifts the pen, a point alone is a dot (no length, round caps)."""
    parts: list[str] = []
    drawing = False
    for x, y in points:
        if y is None:
            drawing = False
            continue
        place = f"{frame.across(x) * WIDTH:.1f} {frame.down(y) * HEIGHT:.1f}"
        parts.append(f"L{place}" if drawing else f"M{place}h0")
        drawing = True
    return "".join(parts)


def _data(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "colour": line.colour,
        "dash": line.dash,
        "x": [x for x, _ in line.points],
        "y": [y for _, y in line.points],
    }


# -- pictures --------------------------------------------------------------------------------------
# The filled charts of the page: a picture in SVG that stands at once, and the data that tells its
# values.


SHADES = 9
"""Colours of the style sheet for lines and work, besides *nothing there* and *the rest*."""


@dataclass(frozen=True)
class Key:
    """A row of the legend: colour (a class of the style sheet), name, maybe an amount."""

    shade: str
    name: str
    amount: str = ""


@dataclass(frozen=True)
class Shape:
    """Path data of everything of one colour; ``shade`` is a class of the style sheet."""

    shade: str
    path: str


@dataclass(frozen=True)
class Picture:
    """One chart; ``rows``: height in px without axis, ``said``: in numbers; maybe ``of_memory``."""

    id: str
    title: str
    note: str
    unit: str
    x_label: str
    said: str
    keys: tuple[Key, ...]
    shapes: tuple[Shape, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    rows: int
    thinned: str
    codes: tuple[str, ...]
    of_memory: bool = False
    plot: dict[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """What the page's scripts need: to tell its values, to zoom, to draw it with plotly."""
        return {
            "id": self.id,
            "height": self.rows,
            "unit": self.unit,
            "xLabel": self.x_label,
            **self.plot,
        }


def shade(colour: int) -> str:
    """Class of the style sheet for a tone's colour; colours it does not know are the rest."""
    if colour == 0:
        return "tone-none"
    return f"tone-{colour}" if 0 < colour <= SHADES else "tone-rest"


def short(value: float) -> float:
    """As many digits as a picture can show."""
    return float(f"{value:.6g}")


def across(low: float, high: float, about: int = 8, scale: float = 1.0) -> tuple[Tick, ...]:
    """Ticks of the axis from ``low`` to ``high``, labelled in units of ``scale``."""
    span = high - low
    if span <= 0:
        return ()
    return tuple(
        Tick((place * scale - low) / span, amounts.digits(place))
        for place in ticks(low / scale, high / scale, about)
    )


def box(left: float, top: float, width: float, height: float) -> str:
    """Path data of a rectangle, in shares of the picture."""
    wide = max(width * WIDTH, 0.4)  # what is there is drawn, as a hairline at least
    return f"M{left * WIDTH:.1f} {top * HEIGHT:.1f}h{wide:.1f}v{height * HEIGHT:.1f}h-{wide:.1f}z"


def evenly(values: Sequence[Any], limit: int) -> Sequence[Any]:
    """At most ``limit`` of the values, evenly chosen, the first among them."""
    return (
        values
        if len(values) <= limit
        else [values[index * len(values) // limit] for index in range(limit)]
    )


# -- stacked ---------------------------------------------------------------------------------------
# Memory over time as a stacked chart: who holds how much, what the allocator reserves, where steps
# begin.


MARKS = 80
"""Lines where steps begin that are drawn at most."""

HIGH = 300
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
        said=_memory_caption(drawn),
        keys=tuple(_layer_keys(chart, drawn, said)),
        shapes=tuple(_layer_shapes(chart, drawn, marks, top)),
        x_ticks=across(0.0, drawn.right, scale=x_scale),
        y_ticks=tuple(Tick(1 - tick.at, tick.label) for tick in across(0.0, top, 5, scale)),
        rows=HIGH,
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


def _memory_caption(drawn: _Drawn) -> str:
    totals = [sum(column) for column in zip(*drawn.held, strict=True)]
    return (
        f"At most {amounts.size(max(totals))} in use and {amounts.size(max(drawn.reserved))} "
        f"reserved; {amounts.size(totals[-1])} in use at the end."
    )


def _layer_keys(chart: Layers, drawn: _Drawn, names: Sequence[str]) -> Iterator[Key]:
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


def _layer_shapes(
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
            yield Shape(name, "".join(f"M{place * WIDTH:.1f} 0V{HEIGHT}" for place in places))


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


# -- parts -----------------------------------------------------------------------------------------
# What the steps are made of, drawn: a row of bars for each side of a step.


MOST_ROWS = 60
"""Rows that are drawn at most."""

ROW_HEIGHT = 34
"""Of a row, in px."""
_FILLED = 0.78
"""Share of a row's height that its bars take."""


def picture(chart: Parts) -> Picture | None:
    """The picture; None if nothing of it can be drawn."""
    bars = _valid(chart)
    if not bars:
        return None
    right = max(bar.start + bar.length for bar in bars)
    unit, scale = scaled("us", right)
    names = [text.one_line(name, 60) for name in chart.rows[:MOST_ROWS]]
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
        rows=max(70, ROW_HEIGHT * len(names)),
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
    count = min(len(chart.rows), MOST_ROWS)
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
    tone, amount = chart.tones[bar.tone], text.micro(amounts.duration(bar.length))
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
            amount = f"{text.micro(amounts.duration(total))} a step"
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
