"""Calls of the driver in a trace that stop the host or the device: memory from and to the driver,
and memsets that wait.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import timeline_of
from auditor.model import Site
from auditor.model.what_if import Change
from auditor.rule import NotLooked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from auditor.timeline import Timeline

UNCACHED = 0.3
"""Allocations by the driver for each kernel of the steady steps from which nothing is cached: with
a cache there are next to none, without one nearly each kernel has one for its result (in-place
operators and optimizers have none)."""

IN_TURN = 0.25
"""Share of allocations that a free must follow before the next: ``empty_cache`` and retries free
many blocks at once.
"""

FEWEST = 20
"""Allocations in the steady steps below which nothing is said about the cache."""


@dataclass(frozen=True)
class DriverCalls:
    """Calls of one API. ``per_step`` counts them on each step; ``us`` is the host's time inside all
    of them, ``lost_us`` on each step the device's idle time that they caused.

    ``memory`` is the kind of memory that a memset writes (``Device``, ``Pinned``, ``Managed``),
    empty for other calls.
    """

    api: str
    n: int
    us: float
    per_step: tuple[int, ...]
    lost_us: tuple[float, ...]
    memory: str = ""
    site: Site | None = None
    rows: tuple[tuple[int, ...], ...] = ()
    """For each step the calls of the timeline that they are."""

    def without(self, after: int = 0) -> Change:
        """What a replay leaves out: these calls, but for those of the first ``after`` steps."""
        return Change("calls", tuple(row for step in self.rows[after:] for row in step))

    @property
    def pins(self) -> bool:
        """Whether it takes or gives back pinned memory of the host, not memory of the device."""
        return "Host" in self.api

    def told(self, timed: bool, each: bool = True) -> str:
        """How many calls, and how long each or all of them took where the times are a GPU's."""
        took = (
            f", {amounts.duration(self.us / self.n)} each"
            if each
            else f", {amounts.duration(self.us)}"
        )
        return f"{self.n} calls{took if timed else ''}"

    def pattern(self, after: int = 0) -> StepPattern:
        """On which steps it was called, the first ``after`` of them left out."""
        counted = self.per_step[after:]
        return step_pattern({step for step, count in enumerate(counted) if count}, len(counted))


@dataclass(frozen=True)
class TraceDriver(Table):
    """Allocator calls by API, and memsets that hold the host by API and place."""

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    marked: bool = False
    timed: bool = True
    """Whether its times are a GPU's: not those of a null device."""
    span_us: float = 0.0
    uncached: float = 0.0
    """Allocations by the driver for each kernel, where frees follow them in turn as with no cache
    at all; else 0.
    """
    allocator: tuple[DriverCalls, ...] = ()
    memsets: tuple[DriverCalls, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> TraceDriver:
        """From the trace. Raises :class:`NotLooked` where it holds no call of a GPU's runtime."""
        line = timeline_of(evidence)
        if not len(line.trace.calls.start):
            raise NotLooked(
                "the trace holds no call of a GPU's runtime"
                if line.devices
                else "the trace shows no GPU"
            )
        from auditor.timeline.naming import STREAM_ORDERED, plain

        start, end = line.trace.span_ns()
        waiting = [one for one in line.allocator_calls if plain(one.api) not in STREAM_ORDERED]
        return cls(
            marked=line.steps.marked,
            timed=not line.trace.info.null_device,
            span_us=(end - start) / 1e3,
            uncached=_uncached(line),
            allocator=tuple(_calls(line, one.rows.tolist(), one.api) for one in waiting),
            memsets=tuple(_memsets(line)),
        )


def _uncached(line: Timeline) -> float:
    """Allocations by the driver for each kernel after the first step, where they and frees come in
    turn; 0 where they do not.
    """
    import numpy as np

    from auditor.timeline.naming import plain
    from auditor.timeline.trace import KERNEL

    rows: dict[str, list[NDArray[np.int64]]] = {"Malloc": [], "Free": []}
    for one in line.allocator_calls:
        kind = plain(one.api).removeprefix("cuda").removeprefix("hip")
        if kind in rows:
            rows[kind].append(one.rows)
    if not rows["Malloc"] or not rows["Free"]:
        return 0.0
    begin = line.steps.end[0] if line.steps.marked and line.steps.count > 1 else -1
    starts = [line.trace.calls.start[np.concatenate(found)] for found in rows.values()]
    mallocs, frees = (np.sort(start[start >= begin]) for start in starts)
    work = line.trace.work
    kernels = int(np.count_nonzero((work.kind == KERNEL) & (work.start >= begin)))
    followed = np.diff(np.searchsorted(frees, np.append(mallocs, np.iinfo(np.int64).max))) > 0
    in_turn = len(mallocs) >= FEWEST and followed.mean() >= IN_TURN
    each = len(mallocs) / max(1, kernels)
    return each if in_turn and each >= UNCACHED else 0.0


def _memsets(line: Timeline) -> list[DriverCalls]:
    groups: dict[tuple[str, str, Site | None], list[int]] = defaultdict(list)
    rows = [one.call for one in line.waiting_memsets]
    places = (
        line.functions_at(line.trace.calls.start[rows], line.trace.calls.thread[rows])
        if rows
        else []
    )
    for one, place in zip(line.waiting_memsets, places, strict=True):
        site = Site(place.file, place.line, place.function) if place is not None else None
        groups[one.api, one.memory, site].append(one.call)
    return [_calls(line, rows, api, memory, site) for (api, memory, site), rows in groups.items()]


def _calls(
    line: Timeline, rows: list[int], api: str, memory: str = "", site: Site | None = None
) -> DriverCalls:
    import numpy as np

    calls = line.trace.calls
    us = float((calls.end[rows] - calls.start[rows]).sum()) / 1e3
    step = line.steps.of(calls.start[rows]).tolist()
    inside: list[list[int]] = [[] for _ in range(line.steps.count)]
    lost = [0.0] * line.steps.count
    for each, row, ns in zip(step, rows, line.call_prices(np.array(rows)).tolist(), strict=True):
        if each >= 0:
            inside[each].append(row)
            lost[each] += ns / 1e3
    number = tuple(map(len, inside))
    return DriverCalls(
        api, len(rows), us, number, tuple(lost), memory, site, tuple(map(tuple, inside))
    )
