"""Which span ran inside which on a thread: operators, annotations and calls as a forest."""

import re
import sys
from dataclasses import dataclass

import numpy as np

from auditor.timeline.intervals import groups, mask
from auditor.timeline.trace import Calls, Codes, Flags, Ints, Operators, Trace

ORDINARY_DEPTH = 64
"""Levels that are climbed one by one: operators of programs are nested less deeply."""


@dataclass(frozen=True)
class CallTree:
    """Rows are those of :class:`Operators` followed by those of :class:`Calls`.

    A span's parent is the innermost operator or annotation that is still open when it starts. Where
    spans only overlap (clocks of two sources, unfinished spans), the parent need not hold the whole
    of the child.
    """

    name: Codes
    parent: Codes
    """Row of the parent; -1 at the top."""
    operators: int
    """Number of operator rows: row ``operators + i`` is call ``i``."""
    sources: tuple[Operators, Calls]

    def nearest(self, rows: Ints, wanted: Flags) -> Ints:
        """For each row the innermost ancestor (not itself) that is ``wanted``; -1 without one."""
        if not wanted.any():
            return np.full(len(rows), -1, np.int64)
        found = self.parent[rows].astype(np.int64)
        for _ in range(ORDINARY_DEPTH):
            climbing = np.flatnonzero((found >= 0) & ~wanted[found])
            if not len(climbing):
                return found
            found[climbing] = self.parent[found[climbing]]
        return self._leap(found, wanted)

    def _leap(self, found: Ints, wanted: Flags) -> Ints:
        """What is nested deeper than programs are: each round doubles the stride."""
        own = np.arange(len(self.parent))
        stride = np.where(wanted, own, self.parent).astype(np.int64)
        while True:
            result: Ints = np.where(found >= 0, stride[found], -1)
            if (result == found).all():
                return result
            found, stride = result, np.where(stride >= 0, stride[stride], -1)

    def outermost(self, rows: Ints, wanted: Flags) -> Ints:
        """For each row the outermost ancestor whose row is ``wanted``; -1 where there is none."""
        found = self.nearest(rows, wanted)
        result = found.copy()
        for _ in range(ORDINARY_DEPTH):
            if not (found >= 0).any():
                return result
            found = np.where(found >= 0, self.nearest(np.maximum(found, 0), wanted), -1)
            result = np.where(found >= 0, found, result)
        above = self.nearest(np.arange(len(self.parent)), wanted).astype(np.int32)
        return CallTree(self.name, above, self.operators, self.sources)._top(result)

    def _top(self, found: Ints) -> Ints:
        roots = self.parent < 0
        above = self.nearest(np.maximum(found, 0), roots)
        return np.where((found >= 0) & (above >= 0), above, found)

    def self_ns(self) -> Ints:
        """Duration of each row without what its children cover, never below 0."""
        operators, calls = self.sources
        taken = np.zeros(self.operators)
        for table, parent in (
            (operators, self.parent[: self.operators]),
            (calls, self.parent[self.operators :]),
        ):
            child = np.flatnonzero(parent >= 0)
            above = parent[child]
            inner = np.minimum(table.end[child], operators.end[above]) - table.start[child]
            taken += np.bincount(above, weights=inner, minlength=self.operators)
        own = np.maximum(operators.end - operators.start - taken.astype(np.int64), 0)
        return np.concatenate((own, calls.end - calls.start))


def call_tree(operators: Operators, calls: Calls, marks: Ints) -> CallTree:
    """The forest of a trace. ``marks`` are the rows of step marks (``ProfilerStep#7``): a script's
    step ends in a hook of its optimizer, so the next one's mark begins inside ``Optimizer.step``,
    which it outlasts and does not belong to. A mark has no parent.
    """
    start = np.concatenate((operators.start, calls.start))
    end = np.concatenate((operators.end, calls.end))
    parent = np.full(len(start), -1, np.int32)
    for _, rows in groups(np.concatenate((operators.thread, calls.thread))):
        order, above = parents_of(start[rows], end[rows], rows >= len(operators.start))
        order, child = rows[order], np.flatnonzero(above >= 0)
        parent[order[child]] = order[above[child]]
    parent[marks] = -1
    names = np.concatenate((operators.name, calls.name))
    return CallTree(names, parent, len(operators.start), (operators, calls))


def parents_of(start: Ints, end: Ints, leaf: Flags) -> tuple[Ints, Codes]:
    """(order, parent in that order) of the spans of one thread; a ``leaf`` is no parent."""
    order = _outer_first(start, end, leaf)
    ordered = start[order], end[order], leaf[order]
    above, nested = _nest(*ordered)
    return order, above if nested else _walk(*ordered)


def _outer_first(start: Ints, end: Ints, leaf: Flags) -> Ints:
    """Order by start; of equal starts the longer first, and operators before calls."""
    # files are nearly in order: much faster than sorting by three keys
    order = np.argsort(start, kind="stable")
    same = start[order[1:]] == start[order[:-1]]
    tied = np.flatnonzero(np.concatenate(([False], same)) | np.concatenate((same, [False])))
    rows = order[tied]
    order[tied] = rows[np.lexsort((leaf[rows], -end[rows], start[rows]))]
    return order


def _nest(start: Ints, end: Ints, leaf: Flags) -> tuple[Codes, bool]:
    """Parents of spans sorted by (start, -end, leaf); False if they do not nest (then the result is
    wrong).

    Only spans that have a length and are no leaves can be parents. In spans that nest, a span's
    depth is the number of parents that began before it less those that ended. One that is deeper
    than the span before it is that span's child; any other has the parent of the last span before
    it at its own depth.
    """
    size = len(start)
    holder = (end > start) & ~leaf
    depth = np.cumsum(holder, dtype=np.int32) - holder
    depth -= np.searchsorted(np.sort(end[holder]), start, side="right").astype(np.int32)
    parent = np.full(size, -1, np.int32)
    if not size or depth.min() < 0:
        return parent, size == 0
    if depth.max() < 1 << 15:
        depth = depth.astype(np.int16)  # numpy sorts these by radix
    by_depth = np.argsort(depth, kind="stable")
    first = np.concatenate(([False], depth[1:] > depth[:-1]))  # the first child of the span before
    if not holder[np.flatnonzero(first) - 1].all() or depth[0]:
        return parent, False
    oldest = np.maximum.accumulate(np.where(first[by_depth], np.arange(size), 0))
    parent[by_depth] = np.where(depth[by_depth] > 0, by_depth[oldest] - 1, -1)
    del depth, by_depth, first, oldest
    child = np.flatnonzero(parent >= 0)
    until = end[parent[child]]
    return parent, bool(
        (start[child] < until).all() and ((end[child] <= until) | ~holder[child]).all()
    )


def _walk(start: Ints, end: Ints, leaf: Flags) -> Codes:
    """Parents span by span, for any overlaps."""
    parents: list[int] = []
    stack: list[int] = []
    ends = end.tolist()
    for row, (begin, is_leaf) in enumerate(zip(start.tolist(), leaf.tolist(), strict=True)):
        while stack and ends[stack[-1]] <= begin:
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        if not is_leaf:
            stack.append(row)
    return np.array(parents, np.int32)


# -- frames ----------------------------------------------------------------------------------------

_FRAME = re.compile(r"(?P<file>.*?\.py)\((?P<line>\d+)\): (?P<function>.*)$", re.DOTALL)
_FOREIGN = re.compile(
    r"(^|[/\\])(site-packages|dist-packages|torch|torchvision|lightning|pytorch_lightning|accelerate|transformers)[/\\]|[/\\]lib[/\\]python|^<|<frozen|<string>"
)
_SCRIPT_NAMES = {"code", "profile", "cProfile", "trace", "test", "cmd", "this", "types", "platform"}
_STANDARD = frozenset(sys.stdlib_module_names) - _SCRIPT_NAMES


@dataclass(frozen=True)
class UserFunction:
    """A function of the user's. ``line`` is that of its ``def``."""

    file: str
    line: int
    function: str


def place_of(frame: str) -> UserFunction | None:
    """The place that a frame's name tells, None if it is not the user's (torch, a library)."""
    found = _FRAME.match(frame)
    if not found or _FOREIGN.search(found["file"]):
        return None
    top = re.split(r"[/\\]", found["file"])[0].removesuffix(".py")
    if top in _STANDARD:
        return None
    return UserFunction(found["file"], int(found["line"][:9]), found["function"])


def places(trace: Trace, thread: Codes, time: Ints) -> list[UserFunction | None]:
    """The innermost function of the user's around each moment of a host thread."""
    result: list[UserFunction | None] = [None] * len(time)
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
    order, parent = parents_of(start, end, np.zeros(len(rows), np.bool_))
    found = np.searchsorted(start[order], time, side="right") - 1
    while True:
        row = order[np.maximum(found, 0)]
        climbing = np.flatnonzero((found >= 0) & ((end[row] <= time) | ~users[row]))
        if not len(climbing):
            return np.where(found >= 0, rows[row], -1)
        found[climbing] = parent[found[climbing]]


def around(trace: Trace, thread: int, start: int, end: int) -> str:
    """The Python function that holds nearly all of a stretch of a host thread; may be empty."""
    spans, slack = trace.frames, (end - start) // 20
    holding = (spans.thread == thread) & (spans.start <= start + slack) & (spans.end >= end - slack)
    rows = np.flatnonzero(holding)
    if not len(rows):
        return ""
    tightest = int(rows[np.argmin(spans.end[rows] - spans.start[rows])])
    return trace.names[int(spans.name[tightest])]
