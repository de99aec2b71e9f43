"""Bars in lanes: the timeline of a step, the parts of the steps, the segments of a device's
memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from auditor import amounts
from auditor.model.charts import Bar, Lanes

from . import text
from .charts import POINTS, Tick, scaled
from .pictures import Key, Marked, Picture, Place, Shape, across, box, shade, short

LANES = 60
"""Lanes that are drawn at most."""

_ROW = {"timeline": 34, "parts": 34, "segments": 22}
_FILLED = 0.78
"""Share of a lane's height that its bars take."""

_HINTS = "findings"
_GAP = "the costliest gap"


def pictures(lanes: Sequence[Lanes], anchors: Mapping[str, tuple[str, str]]) -> tuple[Picture, ...]:
    """One picture each; those without a bar are left out. ``anchors`` holds link and code of
    findings by their key.
    """
    numbered = (
        (f"{chart.kind}-{number}", chart, _valid(chart)) for number, chart in enumerate(lanes, 1)
    )
    return tuple(_picture(name, chart, bars, anchors) for name, chart, bars in numbered if bars)


def _valid(chart: Lanes) -> list[Bar]:
    """Bars that can be drawn: inside the lanes, of a known tone, with finite numbers."""
    count = min(len(chart.lanes), LANES)
    fit = (bar for bar in chart.bars if 0 <= bar.lane < count and 0 <= bar.tone < len(chart.tones))
    good = [
        bar
        for bar in fit
        if math.isfinite(bar.start + bar.length) and bar.start >= 0 and bar.length > 0
    ]
    return sorted(good, key=lambda bar: -bar.length)[:POINTS]


def _picture(
    name: str, chart: Lanes, bars: Sequence[Bar], anchors: Mapping[str, tuple[str, str]]
) -> Picture:
    gap = costliest(chart, anchors)
    right = max(bar.start + bar.length for bar in bars)
    if chart.gap is not None and gap is not None:
        right = max(right, chart.gap.start + chart.gap.length)
    unit, scale = scaled(chart.unit, right)
    places = _places(chart, anchors, right)
    names = [*([_HINTS] if places else []), *(_lane(chart, lane) for lane in chart.lanes[:LANES])]
    ahead = len(names) - len(chart.lanes[:LANES])
    bodies = [
        _body(bar, chart, scale, ahead)
        for bar in sorted(bars, key=lambda bar: (bar.lane, bar.start))
    ]
    found = [_pointed(pointed, scale) for pointed in places]
    found += _gap_bodies(chart, scale, ahead) if gap is not None else []
    return Picture(
        id=name,
        title=text.one_line(chart.title, 200),
        note=text.one_line(chart.note, 1000),
        unit=unit,
        x_label=f"time, {unit}" if chart.unit == "us" else f"place in the row, {unit}",
        said=_said(chart, bars),
        keys=(
            *([Key("gap", _GAP)] if gap is not None else []),
            *_keys(chart, bars, found=bool(places)),
        ),
        shapes=(
            *_shapes([*found, *bodies], len(names), right / scale),
            *_edges(chart, len(names), right, ahead),
        ),
        x_ticks=across(0.0, right, scale=scale),
        y_ticks=tuple(Tick((row + 0.5) / len(names), label) for row, label in enumerate(names)),
        rows=max(70, _ROW[chart.kind] * len(names)),
        thinned=_thinned(chart, bars),
        codes=chart.codes,
        grid=False,
        of_memory=chart.kind == "segments",
        places=tuple(_summed(places)),
        gap=gap,
        plot={
            "kind": "lanes",
            "lanes": names,
            "right": right / scale,
            "span": [0.0, short(right / scale)],
            "groups": list(_groups([*found, *bodies])),
            "edges": [[row + ahead, short(at / scale)] for row, at in _borders(chart, right)],
        },
    )


def _said(chart: Lanes, bars: Sequence[Bar]) -> str:
    if chart.kind != "segments":
        return ""
    return f"{amounts.size(sum(bar.length for bar in bars))} reserved."


Body = tuple[str, str, int, float, float, str]
"""Shade, name of the tone, row, start and length in the shown unit, label."""


def _body(bar: Bar, chart: Lanes, scale: float, ahead: int) -> Body:
    tone = chart.tones[bar.tone]
    amount = _amount(chart, bar.length)
    label = f"{text.one_line(bar.label, 120)}, {amount}" if bar.label else amount
    place = (short(bar.start / scale), short(bar.length / scale))
    return (shade(tone.colour), text.one_line(tone.name, 200), bar.lane + ahead, *place, label)


def _amount(chart: Lanes, length: float) -> str:
    return amounts.size(length) if chart.unit == "bytes" else amounts.duration(length, "µs")


def _pointed(pointed: Pointed, scale: float) -> Body:
    (_, code), start, length = pointed
    where = f"{code}, at {amounts.duration(start, 'µs')} for {amounts.duration(length, 'µs')}"
    return ("pointed", _HINTS, 0, short(start / scale), short(length / scale), where)


def costliest(chart: Lanes, anchors: Mapping[str, tuple[str, str]]) -> Marked | None:
    """What is said of the costliest gap; None where there is none that can be drawn."""
    gap = chart.gap
    if gap is None or not math.isfinite(gap.start + gap.length + gap.share):
        return None
    if gap.start < 0 or gap.length <= 0 or not 0 < gap.share <= 1:
        return None
    count = min(len(chart.lanes), LANES)
    if not gap.lanes or not all(0 <= lane < count for lane in gap.lanes):
        return None
    anchor, code = anchors.get(gap.key, ("", ""))
    said = (
        f"{amounts.duration(gap.length, 'µs')} of this step "
        f"({amounts.percent(gap.share)}) without work on the {gap.whose}, from "
        f"{amounts.duration(gap.start, 'µs')} on: {text.one_line(gap.said, 300)}"
    )
    return Marked(said, anchor, code)


def _gap_bodies(chart: Lanes, scale: float, ahead: int) -> list[Body]:
    gap = chart.gap
    assert gap is not None, "only a gap that is reported is drawn"
    place = (short(gap.start / scale), short(gap.length / scale))
    label = f"{amounts.duration(gap.length, 'µs')}: {text.one_line(gap.said, 300)}"
    return [("gap", _GAP, lane + ahead, *place, label) for lane in gap.lanes]


def _summed(places: Sequence[Pointed]) -> Iterator[Place]:
    """One line a finding: how often it shows, for how long, where first."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for link, start, length in places:
        groups.setdefault(link, []).append((start, length))
    for (anchor, code), spans in groups.items():
        total, first = sum(length for _, length in spans), min(start for start, _ in spans)
        often = (
            ""
            if len(spans) == 1
            else f"{len(spans)} times, in all {amounts.duration(total, 'µs')}, first "
        )
        last = f" for {amounts.duration(total, 'µs')}" if len(spans) == 1 else ""
        yield Place(anchor, code, f"{often}at {amounts.duration(first, 'µs')}{last}")


def _lane(chart: Lanes, name: str) -> str:
    if chart.kind != "segments":
        return text.one_line(name, 60)
    return (
        f"+ {amounts.size(int(name))}"
        if name.isdecimal() and len(name) < 18
        else text.one_line(name, 20)
    )


Pointed = tuple[tuple[str, str], float, float]
"""Link and code of a finding, start and length in us."""


def _places(chart: Lanes, anchors: Mapping[str, tuple[str, str]], right: float) -> list[Pointed]:
    """Findings that show here; those that the page does not hold, or outside the picture, are left
    out.
    """
    found = []
    for pointer in chart.pointers[:POINTS]:
        known = anchors.get(pointer.key)
        if (
            known
            and 0 <= pointer.start <= right
            and math.isfinite(pointer.length)
            and pointer.length >= 0
        ):
            found.append((known, pointer.start, min(pointer.length, right - pointer.start)))
    return found


def _keys(chart: Lanes, bars: Sequence[Bar], *, found: bool) -> Iterator[Key]:
    sums = [0.0] * len(chart.tones)
    for bar in bars:
        counts = chart.kind != "parts" or chart.lanes[bar.lane].startswith(
            chart.lanes[0].partition(":")[0]
        )
        sums[bar.tone] += bar.length if counts else 0.0
    if found:
        yield Key("pointed", "where a finding shows")
    for number, (tone, total) in enumerate(zip(chart.tones, sums, strict=True)):
        if total or any(bar.tone == number for bar in bars):
            amount = (
                ""
                if chart.kind == "timeline"
                else _amount(chart, total) + (" a step" if chart.kind == "parts" else "")
            )
            yield Key(shade(tone.colour), text.one_line(tone.name, 200), amount)


def _shapes(bodies: Sequence[Body], rows: int, right: float) -> Iterator[Shape]:
    height = 1 / rows
    paths: dict[str, list[str]] = {}
    for name, _, row, start, length, _ in bodies:
        top = (row + (1 - _FILLED) / 2) * height
        paths.setdefault(name, []).append(box(start / right, top, length / right, height * _FILLED))
    for name, parts in paths.items():
        yield Shape(f"fill {name}", "".join(parts))


def _borders(chart: Lanes, right: float) -> list[tuple[int, float]]:
    count = min(len(chart.lanes), LANES)
    return [(row, at) for row, at in chart.edges[:POINTS] if 0 <= row < count and 0 <= at <= right]


def _edges(chart: Lanes, rows: int, right: float, ahead: int) -> Iterator[Shape]:
    """Borders between segments, a little higher than the bars."""
    known = _borders(chart, right)
    if known:
        yield Shape(
            "edge",
            "".join(
                box(at / right, (row + ahead + 0.02) / rows, 0.0, 0.96 / rows) for row, at in known
            ),
        )


def _groups(bodies: Sequence[Body]) -> Iterator[dict[str, object]]:
    """Bars by colour, as plotly draws them fastest."""
    named: dict[tuple[str, str], list[Body]] = {}
    for body in bodies:
        named.setdefault(body[:2], []).append(body)
    for (colour, name), group in named.items():
        yield {
            "shade": colour,
            "name": name,
            "lane": [body[2] for body in group],
            "base": [body[3] for body in group],
            "length": [body[4] for body in group],
            "label": [body[5] for body in group],
        }


def _thinned(chart: Lanes, bars: Sequence[Bar]) -> str:
    if chart.total <= len(bars):
        return ""
    things = "blocks and free parts" if chart.kind == "segments" else "spans"
    return (
        f"{chart.total:,} {things} in {len(bars):,} bars: those too short to be seen are joined "
        "with their neighbours."
    )
