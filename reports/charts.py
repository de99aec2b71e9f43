"""Plots as geometry: points thinned without hiding an extreme, drawn as plain SVG and handed on to
the page's scripts as data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from auditor import amounts
from auditor.model.charts import Series

from . import text

POINTS = 5000
"""Points that one chart hands to the page's scripts at most: above it zooming stutters (research:
50k SVG points paint in 4.7 s).
"""

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
class Mark:
    """Something that happened at a step: where it is drawn (0 to 1 from the left and the top) and
    what it was.
    """

    x: float
    y: float
    left: float
    top: float
    label: str


@dataclass(frozen=True)
class Line:
    """One series in the chart's unit. ``points`` are those that a script can tell and zoom into;
    ``drawn`` are those of the SVG's ``path``.
    """

    name: str
    colour: int
    dash: str
    pattern: str
    points: tuple[Point, ...]
    drawn: tuple[Point, ...]
    path: str
    marks: tuple[Mark, ...]


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
    ended: Mark | None = None
    """The step that did not complete."""

    @property
    def kept(self) -> int:
        """Points left after thinning."""
        return sum(len(line.points) for line in self.lines)

    @property
    def drawn(self) -> int:
        """Points of the SVG."""
        return sum(len(line.drawn) for line in self.lines)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Marks of all lines, from left to right."""
        return tuple(
            sorted((mark for line in self.lines for mark in line.marks), key=lambda mark: mark.x)
        )

    def highest(self, limit: int) -> tuple[Mark, ...]:
        """The highest marks, at most so many, from left to right."""
        chosen = sorted(self.marks, key=lambda mark: -mark.y)[:limit]
        return tuple(sorted(chosen, key=lambda mark: mark.x))

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
    """One chart for each unit of which a series has two finite points, in the order in which units
    first appear.
    """
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
    """Round numbers (1, 2 or 5 times a power of ten) from ``low`` to ``high``, about so many."""
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
    """The chart's window: x from ``left`` to ``right``, y from zero (or the lowest below it) to
    ``high``.
    """

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
        ended=Mark(ended[0], 0.0, frame.across(ended[0]), 0.0, text.one_line(ended[1], 200))
        if ended is not None
        else None,
    )


def scaled(unit: str, largest: float) -> tuple[str, float]:
    """The unit in which ``largest`` (of ``us`` or ``bytes``) reads well, and how many of ``unit``
    it is.
    """
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
        marks=tuple(_marks(series, points, frame)),
    )


def _marks(series: Series, points: Sequence[Point], frame: _Frame) -> Iterator[Mark]:
    heights = dict(points)
    for x, label in series.marks:
        y = heights.get(x)
        if y is not None:
            yield Mark(x, y, frame.across(x), frame.down(y), text.one_line(label, 200))


def _path(points: Sequence[Point], frame: _Frame) -> str:
    """SVG path data; a gap lifts the pen, and a point alone becomes a dot (a line of no length with
    round caps).
    """
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
        "marks": [{"x": mark.x, "y": mark.y, "label": mark.label} for mark in line.marks],
    }
