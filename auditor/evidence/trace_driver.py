"""Calls of the driver in a trace that stop the host or the device: memory from and to the driver, and memsets that wait."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor.evidence.rhythm import Rhythm, rhythm
from auditor.evidence.table import Table
from auditor.evidence.trace import timeline_of
from auditor.model import Site
from auditor.recording import Recording
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.timeline import Timeline

STREAM_ORDERED = ("cudaMallocAsync", "cudaFreeAsync")
"""Calls that do not wait: the cudaMallocAsync backend makes them on every allocation by design."""


@dataclass(frozen=True)
class DriverCalls:
    """Calls of one API. ``per_step`` counts them on each step; ``us`` is the host's time inside all of them, ``lost_us`` on each
    step the device's idle time that they caused.

    ``memory`` is the kind of memory that a memset writes (``Device``, ``Pinned``, ``Managed``), empty for other calls.
    """

    api: str
    n: int
    us: float
    per_step: tuple[int, ...]
    lost_us: tuple[float, ...]
    memory: str = ""
    site: Site | None = None

    @property
    def pins(self) -> bool:
        """Whether it takes or gives back pinned memory of the host, not memory of the device."""
        return "Host" in self.api

    def rhythm(self, after: int = 0) -> Rhythm:
        """On which steps it was called, the first ``after`` of them left out."""
        counted = self.per_step[after:]
        return rhythm({step for step, count in enumerate(counted) if count}, len(counted))


@dataclass(frozen=True)
class TraceDriver(Table):
    """Allocator calls by API, and memsets that hold the host by API and place."""

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    marked: bool = False
    span_us: float = 0.0
    allocator: tuple[DriverCalls, ...] = ()
    memsets: tuple[DriverCalls, ...] = ()

    @classmethod
    def build(cls, recording: Recording) -> TraceDriver:
        """From the trace. Raises :class:`NotLooked` where it holds no call of a GPU's runtime."""
        line = timeline_of(recording)
        if not len(line.trace.calls.start):
            raise NotLooked("the trace holds no call of a GPU's runtime" if line.devices else "the trace shows no GPU")
        start, end = line.trace.span_ns()
        return cls(
            marked=line.steps.marked,
            span_us=(end - start) / 1e3,
            allocator=tuple(
                _calls(line, one.rows.tolist(), one.api) for one in line.allocator_calls if one.api not in STREAM_ORDERED
            ),
            memsets=tuple(_memsets(line)),
        )


def _memsets(line: Timeline) -> list[DriverCalls]:
    groups: dict[tuple[str, str, Site | None], list[int]] = defaultdict(list)
    rows = [one.call for one in line.waiting_memsets]
    places = line.functions_at(line.trace.calls.start[rows], line.trace.calls.thread[rows]) if rows else []
    for one, place in zip(line.waiting_memsets, places, strict=True):
        site = Site(place.file, place.line, place.function) if place is not None else None
        groups[one.api, one.memory, site].append(one.call)
    return [_calls(line, rows, api, memory, site) for (api, memory, site), rows in groups.items()]


def _calls(line: Timeline, rows: list[int], api: str, memory: str = "", site: Site | None = None) -> DriverCalls:
    import numpy as np

    calls = line.trace.calls
    us = float((calls.end[rows] - calls.start[rows]).sum()) / 1e3
    step = line.steps.of(calls.start[rows]).tolist()
    number, lost = [0] * line.steps.count, [0.0] * line.steps.count
    for each, ns in zip(step, line.call_prices(np.array(rows)).tolist(), strict=True):
        if each >= 0:
            number[each] += 1
            lost[each] += ns / 1e3
    return DriverCalls(api, len(rows), us, tuple(number), tuple(lost), memory, site)
