"""Where the training steps are: the profiler's own marks, else the optimizer's calls, else the
whole trace, and which of them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from auditor.timeline.intervals import Intervals, union
from auditor.timeline.naming import is_step, mask
from auditor.timeline.trace import Ints, Trace

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline

PROFILER, OPTIMIZER, WHOLE = "ProfilerStep", "optimizer", "whole trace"


@dataclass(frozen=True)
class Steps:
    """Training steps, in order of time. ``source`` says how they were found: it belongs into every
    sentence about "a step".
    """

    start: Ints
    end: Ints
    names: tuple[str, ...]
    source: str

    @property
    def count(self) -> int:
        """Number of steps; 1 for a whole trace."""
        return len(self.start)

    @property
    def marked(self) -> bool:
        """Whether the steps are known, rather than the whole trace taken for one."""
        return self.source != WHOLE

    @property
    def numbers(self) -> tuple[int, ...]:
        """The steps' numbers by name (``ProfilerStep#12``); from 0 where these do not ascend."""
        said = [re.search(r"\d{1,15}$", name) for name in self.names]
        found = [int(each[0]) for each in said if each is not None]
        ascend = len(found) == self.count and all(one < other for one, other in pairwise(found))
        return tuple(found) if ascend else tuple(range(self.count))

    @property
    def windows(self) -> Intervals:
        """The time inside steps."""
        return union(self.start, self.end)

    def of(self, times: Ints) -> Ints:
        """The step in which each time lies (the last one begun, its end included), -1 outside."""
        place = np.searchsorted(self.start, times, side="right") - 1
        inside = (
            (place >= 0) & (times <= self.end[np.maximum(place, 0)])
            if self.count
            else np.zeros(len(times), np.bool_)
        )
        return np.where(inside, place, -1)

    def per_step(self, times: Ints) -> Ints:
        """How many of the times lie in each step."""
        place = self.of(times)
        return np.bincount(place[place >= 0], minlength=self.count)


def steps_of(line: Timeline) -> Steps:
    """The training steps, and how they were found."""
    trace = line.trace
    return _marked(trace) or _by_optimizer(trace) or _whole(trace)


def _marked(trace: Trace) -> Steps | None:
    spans = trace.operators
    rows = np.flatnonzero(mask(trace.names, spans.name, is_step))
    if not len(rows):
        return None
    _, first = np.unique(
        np.stack((spans.start[rows], spans.name[rows].astype(np.int64))), axis=1, return_index=True
    )
    rows = rows[np.sort(first)]
    rows = rows[np.lexsort((spans.end[rows], spans.start[rows]))]
    return Steps(
        spans.start[rows],
        spans.end[rows],
        tuple(trace.names[code] for code in spans.name[rows]),
        PROFILER,
    )


def _by_optimizer(trace: Trace) -> Steps | None:
    """From one optimizer step to the next, of the one that steps least often (GANs have two)."""
    spans = trace.operators
    rows = np.flatnonzero(
        mask(trace.names, spans.name, lambda name: name.startswith("Optimizer.step"))
    )
    often = Counter(spans.name[rows].tolist())
    rare = [code for code, number in often.items() if number >= 2]
    if not rare:
        return None
    code = min(rare, key=lambda code: (often[code], code))
    ends = np.sort(spans.end[rows[spans.name[rows] == code]])
    names = tuple(f"step {number}" for number in range(len(ends) - 1))
    return Steps(ends[:-1], ends[1:], names, OPTIMIZER)


def _whole(trace: Trace) -> Steps:
    start, end = trace.span_ns()
    return Steps(np.array([start]), np.array([end]), ("whole trace",), WHOLE)
