"""Spans of a chart's lanes as bars: at most as many as a page can hold, in one pass, whatever there
is to draw.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from auditor.model.charts import Bar
from auditor.timeline.intervals import union
from auditor.timeline.trace import Codes, Ints

BARS = 4500
"""Bars of a chart at most, before the marks of findings."""

FINEST = 1000
"""A part of the window so small that nobody could tell two spans apart in it."""

WALKED = 30_000
"""Spans of one lane that are looked at one by one at most; more are counted in cells at once."""


@dataclass(frozen=True)
class Window:
    """The step that is drawn: its name, start and end in ns."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Spans:
    """The spans of one lane in order of time, in ns, inside the window; ``tone`` indexes the
    chart's tones, ``name`` the trace's names.
    """

    lane: str
    start: Ints
    end: Ints
    tone: Ints
    name: Codes


def bars(lanes: Sequence[Spans], chosen: Window, names: Sequence[str]) -> list[Bar]:
    """At most :data:`BARS` bars, in order of lanes and time.

    Neighbours of one tone that nobody could tell apart are joined. A lane that still has more than
    its part of the bars is cut in as many cells as it may have bars: each is one bar, as long as
    the time covered in it, and over all of them a tone has the bars that are its share.
    """
    made = [_joined(spans, number, chosen, names) for number, spans in enumerate(lanes)]
    for number, share in enumerate(
        _shares([BARS + 1 if bars is None else len(bars) for bars in made])
    ):
        known = made[number]
        if known is None or len(known) > share:
            made[number] = _in_cells(lanes[number], number, chosen, share, names)
    return [bar for bars in made for bar in bars or ()]


def _shares(wanted: Sequence[int]) -> list[int]:
    """How many bars each lane may have: what small lanes do not need is left to the others."""
    left, shares = BARS, [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda lane: wanted[lane])
    for place, lane in enumerate(order):
        shares[lane] = min(wanted[lane], left // (len(order) - place))
        left -= shares[lane]
    return shares


def _joined(spans: Spans, lane: int, chosen: Window, names: Sequence[str]) -> list[Bar] | None:
    """Neighbours of one tone that nobody could tell apart as one bar, named after the longest; None
    where there are too many to walk.
    """
    if len(spans.start) > WALKED:
        return None
    columns = (spans.start, spans.end, spans.tone, spans.name, spans.end - spans.start)
    resolution = (chosen.end - chosen.start) / FINEST

    def close(begun: int, reach: int, start: int, end: int) -> bool:
        return min(end - start, reach - begun) < resolution and start - reach < resolution

    rows = zip(*(one.tolist() for one in columns), itertools.repeat(1))
    return _together(rows, close, lane, chosen, names)


def _together(
    rows: Iterable[tuple[int, int, int, int, int, int]],
    close: Callable[[int, int, int, int], bool],
    lane: int,
    chosen: Window,
    names: Sequence[str],
) -> list[Bar]:
    """``rows`` are (start, end, tone, name, length of the longest span, number of spans):
    neighbours of one tone that are ``close`` as one bar, named after the longest.
    """
    found = []
    begun, reach, tone, name, longest, count = 0, -1, -1, 0, 0, 0
    for start, end, this_tone, this_name, this_longest, number in rows:
        if this_tone == tone and close(begun, reach, start, end):
            reach, count = max(reach, end), count + number
            if this_longest > longest:
                longest, name = this_longest, this_name
            continue
        if tone >= 0:
            found.append(_bar(lane, chosen, (begun, reach), tone, _label(names[name], count)))
        begun, reach, tone = start, end, this_tone
        name, longest, count = this_name, this_longest, number
    if tone >= 0:
        found.append(_bar(lane, chosen, (begun, reach), tone, _label(names[name], count)))
    return found


def _bar(lane: int, chosen: Window, stretch: tuple[int, int], tone: int, label: str) -> Bar:
    start, end = stretch
    return Bar(lane, (start - chosen.start) / 1e3, max(end - start, 1) / 1e3, tone, label)


def _label(name: str, count: int) -> str:
    return name if count <= 1 else f"{name} and {count - 1} more"


def _in_cells(
    spans: Spans, lane: int, chosen: Window, most: int, names: Sequence[str]
) -> list[Bar]:
    """The same in at most ``most`` bars: neighbouring cells of one tone that are filled make one
    bar.
    """
    if most < 1:
        return []
    rows = zip(*(one.tolist() for one in _cells(spans, chosen, most)), strict=True)
    return _together(rows, lambda begun, reach, start, end: start == reach, lane, chosen, names)


def _cells(spans: Spans, chosen: Window, most: int) -> tuple[Ints, ...]:
    """Of each cell with something in it: start, end of the time covered, tone, the name and length
    of the longest span of that tone, and how many spans begin there.
    """
    number = max(1, min(most, chosen.end - chosen.start))
    edges = np.linspace(chosen.start, chosen.end, number + 1).astype(np.int64)
    low, high = edges[:-1], edges[1:]
    cell = np.clip(np.searchsorted(edges, spans.start, side="right") - 1, 0, number - 1)
    all_of_them = union(spans.start, spans.end)
    tones = np.unique(spans.tone).tolist()
    score = np.zeros((len(tones), number), np.int64)
    for place, tone in enumerate(tones):
        mine = spans.tone == tone
        score[place] = 2 * union(spans.start[mine], spans.end[mine]).covered(low, high)
        score[place, cell[mine]] += 1  # a span without length is seen where nothing else is
    filled = np.flatnonzero(score.max(axis=0) > 0)
    tone_of = np.array(tones, np.int64)[_chosen(score)]
    name, longest = np.zeros(number, np.int64), np.zeros(number, np.int64)
    for tone in tones:
        rows = np.flatnonzero(spans.tone == tone)
        mine = tone_of == tone
        row = rows[_longest(spans.start[rows], spans.end[rows], cell[rows], number)]
        name[mine], longest[mine] = spans.name[row][mine], (spans.end[row] - spans.start[row])[mine]
    covered = all_of_them.covered(low, high)
    following = np.minimum(np.searchsorted(all_of_them.start, low), len(all_of_them.start) - 1)
    first = np.where(
        all_of_them.holds(low), low, np.clip(all_of_them.start[following], low, high - 1)
    )
    begun = np.bincount(cell, minlength=number)
    columns = (first, first + covered, tone_of, name, longest, begun)
    return tuple(column[filled] for column in columns)


def _chosen(score: Ints) -> Ints:
    """For each cell (column) the row to show: that with most time in it and in cells before which
    showed another.

    So tones that share every cell have their share of the bars, as in a picture of few colours
    (error diffusion).
    """
    waiting, chosen = [0] * len(score), []
    for column in score.T.tolist():
        waiting = [before + more for before, more in zip(waiting, column, strict=True)]
        best = max(range(len(column)), key=lambda row: (column[row] > 0, waiting[row]))
        waiting[best] -= sum(column)
        chosen.append(best)
    return np.array(chosen, np.int64)


def _longest(start: Ints, end: Ints, cell: Ints, number: int) -> Ints:
    """For each cell the longest span that begins in it; where none does, the one begun before that
    reaches furthest.
    """
    order = np.lexsort((end - start, cell))
    last = np.searchsorted(cell[order], np.arange(number), side="right") - 1
    own = order[np.maximum(last, 0)]
    reach = np.maximum.accumulate(end)
    furthest = np.maximum.accumulate(np.where(end == reach, np.arange(len(end)), 0))
    before = np.maximum(np.searchsorted(cell, np.arange(number), side="right") - 1, 0)
    result: Ints = np.where((last >= 0) & (cell[own] == np.arange(number)), own, furthest[before])
    return result
