"""The user's Python function around a moment, where the trace has Python frames.

A trace's frame ends in the line of ``def``: that is where the function begins, never the line of
the call. So a :class:`Place` names the function.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

import numpy as np

from auditor.timeline.intervals import groups
from auditor.timeline.naming import mask
from auditor.timeline.trace import Codes, Ints, Trace
from auditor.timeline.tree import frame_parents

_FRAME = re.compile(r"(?P<file>.*?\.py)\((?P<line>\d+)\): (?P<function>.*)$", re.DOTALL)
_FOREIGN = re.compile(
    r"(^|[/\\])(site-packages|dist-packages|torch|torchvision|lightning|pytorch_lightning|accelerate|transformers)[/\\]|[/\\]lib[/\\]python|^<|<frozen|<string>"
)
_SCRIPT_NAMES = {"code", "profile", "cProfile", "trace", "test", "cmd", "this", "types", "platform"}
_STANDARD = frozenset(sys.stdlib_module_names) - _SCRIPT_NAMES


@dataclass(frozen=True)
class Place:
    """A function of the user's. ``line`` is that of its ``def``."""

    file: str
    line: int
    function: str


def place_of(frame: str) -> Place | None:
    """The place that a frame's name tells, None if it is not the user's (torch, a library)."""
    found = _FRAME.match(frame)
    if not found or _FOREIGN.search(found["file"]):
        return None
    top = re.split(r"[/\\]", found["file"])[0].removesuffix(".py")
    if top in _STANDARD:
        return None
    return Place(found["file"], int(found["line"][:9]), found["function"])


def places(trace: Trace, thread: Codes, time: Ints) -> list[Place | None]:
    """The innermost function of the user's around each moment of a host thread."""
    result: list[Place | None] = [None] * len(time)
    users = mask(trace.names, trace.frames.name, lambda name: place_of(name) is not None)
    wanted = dict(groups(thread))
    for one, rows in groups(trace.frames.thread):
        moments = wanted.get(one)
        if moments is not None:
            found = _innermost(trace, rows, users[rows], time[moments])
            for moment, frame in zip(moments.tolist(), found.tolist(), strict=True):
                result[moment] = (
                    place_of(trace.names[trace.frames.name[frame]]) if frame >= 0 else None
                )
    return result


def _innermost(trace: Trace, rows: Ints, users: np.ndarray, time: Ints) -> Ints:
    """Rows of the innermost user's frames that are open at each time, -1 for none."""
    start, end = trace.frames.start[rows], trace.frames.end[rows]
    order, parent = frame_parents(start, end)
    found = np.searchsorted(start[order], time, side="right") - 1
    while True:
        row = order[np.maximum(found, 0)]
        climbing = np.flatnonzero((found >= 0) & ((end[row] <= time) | ~users[row]))
        if not len(climbing):
            return np.where(found >= 0, rows[row], -1)
        found[climbing] = parent[found[climbing]]


def around(trace: Trace, thread: int, start: int, end: int) -> str:
    """The Python function, whoever wrote it, that holds nearly all of a stretch of a host thread
    and little else; may be empty.
    """
    spans, slack = trace.frames, (end - start) // 20
    holding = (spans.thread == thread) & (spans.start <= start + slack) & (spans.end >= end - slack)
    rows = np.flatnonzero(holding)
    if not len(rows):
        return ""
    tightest = int(rows[np.argmin(spans.end[rows] - spans.start[rows])])
    return trace.names[int(spans.name[tightest])]
