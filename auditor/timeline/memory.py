"""Memory events by device: totals over time and at the ends of steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from auditor.timeline.intervals import groups
from auditor.timeline.naming import mask
from auditor.timeline.steps import Steps
from auditor.timeline.trace import Ints, Trace

HOST = 0


@dataclass(frozen=True)
class MemoryUse:
    """One device's memory events. Totals are bytes, -1 where the torch that recorded them wrote
    none.
    """

    device_type: int
    """0 host, 1 CUDA or HIP."""
    device: int
    allocations: int
    frees: int
    net_bytes: int
    peak_allocated: int
    peak_reserved: int
    first_reserved: int
    allocated_at_step_ends: Ints
    """Last total at or before the end of each step; -1 before the first event."""


def memory_use(trace: Trace, steps: Steps) -> tuple[MemoryUse, ...]:
    """Memory events of a trace by device; empty where memory was not profiled."""
    events = trace.memory
    keys = events.device_type.astype(np.int64) * (1 << 33) + events.device
    keys[~mask(trace.names, events.name, lambda name: name == "[memory]")] = -(1 << 62)
    return tuple(_use(trace, rows, steps) for key, rows in groups(keys) if key != -(1 << 62))


def _use(trace: Trace, rows: Ints, steps: Steps) -> MemoryUse:
    events = trace.memory
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    size, total, reserved = events.bytes[rows], events.allocated[rows], events.reserved[rows]
    place = np.searchsorted(events.start[rows], steps.end, side="right") - 1
    return MemoryUse(
        device_type=int(events.device_type[rows[0]]),
        device=int(events.device[rows[0]]),
        allocations=int((size > 0).sum()),
        frees=int((size < 0).sum()),
        net_bytes=int(size.sum()),
        peak_allocated=int(total.max()),
        peak_reserved=int(reserved.max()),
        first_reserved=int(reserved[0]),
        allocated_at_step_ends=np.where(place >= 0, total[np.maximum(place, 0)], -1),
    )
