"""The filled charts of the page: a picture in SVG that stands at once, and the data that tells its
values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from auditor import amounts

from .charts import HEIGHT, WIDTH, Tick, ticks

COLOURS = 9
"""Colours of the style sheet for lines and kinds of work, besides *nothing there* and *the
rest*.
"""


@dataclass(frozen=True)
class Key:
    """One row of the legend: colour (a class of the style sheet), name, and an amount where there
    is one.
    """

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
    """One chart. ``rows`` is its height in px without the axis, ``said`` what it shows in numbers.
    ``of_memory``: it shows a device's memory over time.
    """

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
    return f"tone-{colour}" if 0 < colour <= COLOURS else "tone-rest"


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


def upright(places: Iterable[float]) -> str:
    """Path data of vertical lines from top to bottom, at shares of the width."""
    return "".join(f"M{place * WIDTH:.1f} 0V{HEIGHT}" for place in places)


def evenly(values: Sequence[Any], limit: int) -> Sequence[Any]:
    """At most ``limit`` of the values, evenly chosen, the first among them."""
    return (
        values
        if len(values) <= limit
        else [values[index * len(values) // limit] for index in range(limit)]
    )
