"""Memsets that held the host: which memory they wrote, and how that is known."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from auditor.timeline.device import Launches
from auditor.timeline.intervals import Intervals
from auditor.timeline.naming import mask
from auditor.timeline.trace import MEMSET, Trace

SYNCHRONOUS_MEMORY = frozenset({"Pinned", "Managed", "Unified"})
"""Memory whose memset is fully synchronous with the host (CUDA runtime API, "API synchronization
behavior").
"""

_MEMORY = re.compile(r"\((\w+)\)")


@dataclass(frozen=True)
class Memset:
    """A memset that waited. ``call`` is a row of :class:`Calls`; ``memory`` as the trace spells it,
    empty where it does not.
    """

    call: int
    api: str
    memory: str


def waiting_memsets(trace: Trace, joined: Launches, busy: Intervals) -> tuple[Memset, ...]:
    """Memsets without ``Async`` in their name that write memory of the synchronous kinds, or that
    were seen to wait.

    Seen means: the device was working when the host called, and the call returned only after the
    memset was done.
    """
    calls, work = trace.calls, trace.work
    rows = np.flatnonzero(
        mask(trace.names, calls.name, lambda name: "emset" in name and "Async" not in name)
    )
    rows = rows[joined.work_of_call[rows] >= 0]
    made = joined.work_of_call[rows]
    rows, made = rows[work.kind[made] == MEMSET], made[work.kind[made] == MEMSET]
    start = calls.start[rows]
    working = busy.covered(start, start + 1) > 0
    seen = working & (calls.end[rows] >= work.end[made]) & (work.start[made] > start)
    found = []
    for row, work_row, waited in zip(rows.tolist(), made.tolist(), seen.tolist(), strict=True):
        memory = _MEMORY.search(trace.names[work.name[work_row]])
        kind = memory[1] if memory else ""
        if waited or kind in SYNCHRONOUS_MEMORY:
            found.append(Memset(row, trace.names[calls.name[row]], kind))
    return tuple(found)
