"""Shapes of programs in the order of their operators: attention in pieces, loops over an index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from auditor.timeline.naming import is_launch, is_loading, mask
from auditor.timeline.trace import Codes, Flags, Ints, Trace
from auditor.timeline.tree import CallTree

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline

BATCHED = frozenset({"aten::bmm", "aten::baddbmm"})
SOFTMAX = frozenset({"aten::_softmax", "aten::_softmax_backward_data"})
OTHER_PRODUCTS = frozenset({"aten::mm", "aten::addmm"})
INDEXING = frozenset(
    {"aten::select", "aten::index", "aten::index_put_", "aten::index_select", "aten::gather"}
)
LONGEST_CYCLE, LEAST_REPEATS = 8, 10


@dataclass(frozen=True)
class Attention:
    """Softmaxes between two batched products, forward and backward. Rows of :class:`CallTree`;
    ``ns`` is their device time.
    """

    softmax: Ints
    ns: int


def attention(line: Timeline) -> Attention:
    """Attention that runs as bmm, softmax, bmm rather than as one kernel."""
    trace = line.trace
    name = trace.operators.name
    batched, softmax = _named(trace, BATCHED), _named(trace, SOFTMAX)
    rows = np.flatnonzero((batched | softmax | _named(trace, OTHER_PRODUCTS))[name])
    rows = rows[np.lexsort((trace.operators.start[rows], trace.operators.thread[rows]))]
    is_batched, is_softmax, thread = (
        batched[name[rows]],
        softmax[name[rows]],
        trace.operators.thread[rows],
    )
    between = (
        np.flatnonzero(
            is_batched[:-2] & is_softmax[1:-1] & is_batched[2:] & (thread[:-2] == thread[2:])
        )
        + 1
    )
    involved = np.unique(np.concatenate((between - 1, between, between + 1)))
    return Attention(rows[between], int(line.launched_ns[rows[involved]].sum()))


@dataclass(frozen=True)
class IndexLoop:
    """A cycle of operators with an indexing one in it that one parent ran again and again. Times in
    ns.
    """

    cycle: tuple[str, ...]
    parent: str
    repeats: int
    first: int
    """Row of its first operator in :class:`CallTree`."""
    start: int
    ns: int


@dataclass(frozen=True)
class Siblings:
    """Operators (no annotations, none of the loader's)by parent, in order of time."""

    rows: Codes
    """Rows of :class:`CallTree`."""
    family: Codes
    """The parent's row; at the top of thread ``t`` it is ``-1 - t``."""


def siblings(line: Timeline) -> Siblings:
    """Operators by parent, in order of time."""
    trace, tree, spans = line.trace, line.tree, line.trace.operators
    loader = mask(trace.names, tree.name, is_loading)
    rows = np.flatnonzero(~spans.annotation)
    if loader.any():
        rows = rows[tree.nearest(rows, loader) < 0]
    parent = tree.parent[rows]
    family = np.where(parent >= 0, parent, -1 - spans.thread[rows])
    order = np.lexsort((spans.start[rows], family))
    return Siblings(rows[order].astype(np.int32), family[order])


def index_loops(line: Timeline) -> tuple[IndexLoop, ...]:
    """Loops whose every turn indexes and launches, outside the data loader; the longest first."""
    trace, tree, by_parent = line.trace, line.tree, siblings(line)
    order = by_parent.rows
    # who runs in whom, as one number
    kind = by_parent.family.astype(np.int64) * len(trace.names) + trace.operators.name[order]
    found: list[IndexLoop] = []
    taken = np.zeros(len(order), np.bool_)
    indexing = np.cumsum(
        np.concatenate(([False], _named(trace, INDEXING)[trace.operators.name[order]]))
    )
    for period in range(1, LONGEST_CYCLE + 1):
        for first, last in _runs(kind[:-period] == kind[period:], (LEAST_REPEATS - 1) * period):
            stop = last + period
            repeats = (stop - first) // period
            if indexing[first] == indexing[first + period] or taken[first:stop].any():
                continue
            taken[first:stop] = True
            found.append(_loop(trace, tree, order[first:stop], (period, repeats)))
    launched = np.sort(trace.calls.start[mask(trace.names, trace.calls.name, is_launch)])
    start = np.array([loop.start for loop in found], np.int64)
    end = start + np.array([loop.ns for loop in found], np.int64)
    counts: list[int] = (np.searchsorted(launched, end) - np.searchsorted(launched, start)).tolist()
    busy = [loop for loop, launches in zip(found, counts, strict=True) if launches >= loop.repeats]
    return tuple(sorted(busy, key=lambda loop: -loop.ns))


def _runs(flags: Flags, least: int) -> list[tuple[int, int]]:
    """(first, one past last) of each stretch of True that is long enough."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    first, last = edges[::2], edges[1::2]
    long = last - first >= least
    return list(zip(first[long].tolist(), last[long].tolist(), strict=True))


def _loop(trace: Trace, tree: CallTree, rows: Codes, shape: tuple[int, int]) -> IndexLoop:
    period, repeats = shape
    parent = int(tree.parent[rows[0]])
    start, end = int(trace.operators.start[rows[0]]), int(trace.operators.end[rows].max())
    cycle = tuple(trace.names[trace.operators.name[row]] for row in rows[:period].tolist())
    return IndexLoop(
        cycle,
        trace.names[tree.name[parent]] if parent >= 0 else "",
        repeats,
        int(rows[0]),
        start,
        end - start,
    )


def _named(trace: Trace, names: frozenset[str]) -> Flags:
    return np.fromiter((name in names for name in trace.names), np.bool_, len(trace.names))
