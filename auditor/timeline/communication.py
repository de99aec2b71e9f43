"""Collectives on the device: how long they ran, and how much of that no computation hid."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from auditor.timeline.device import DeviceUse
from auditor.timeline.intervals import Intervals, union
from auditor.timeline.naming import is_communication, mask
from auditor.timeline.trace import KERNEL, Ints, Trace

_SIGNATURE = re.compile(r"[(<]")


@dataclass(frozen=True)
class Communication:
    """Communication of one device. Times in ns; *exposed* is time with a collective and no other
    kernel running.
    """

    device: int
    rows: Ints
    """Rows of :class:`Work` that communicate, in order of time."""
    busy: Intervals
    exposed: Intervals
    names: dict[str, int]
    """Kernels by name without arguments."""
    compute_ns: int
    """Time in which other kernels ran."""

    @property
    def overlap_share(self) -> float:
        """Part of communication that computation hid."""
        return 1 - self.exposed.length / self.busy.length if self.busy.length else 0.0


def communication(trace: Trace, use: DeviceUse) -> Communication | None:
    """Communication of a device, None without any."""
    work = trace.work
    kernels = use.rows[work.kind[use.rows] == KERNEL]
    talking = mask(trace.names, work.name[kernels], is_communication)
    if not talking.any():
        return None
    rows, other = kernels[talking], kernels[~talking]
    rows = rows[np.argsort(work.start[rows], kind="stable")]
    busy = union(work.start[rows], work.end[rows])
    compute = union(work.start[other], work.end[other])
    names = Counter(_SIGNATURE.split(trace.names[code])[0] for code in work.name[rows].tolist())
    return Communication(
        use.device, rows, busy, _without(busy, compute), dict(names.most_common()), compute.length
    )


def _without(these: Intervals, others: Intervals) -> Intervals:
    """What ``these`` cover and ``others`` do not."""
    if not len(others.start):
        return these
    low, high = min(these.start[0], others.start[0]), max(these.end[-1], others.end[-1])
    free = Intervals(np.concatenate(([low], others.end)), np.concatenate((others.start, [high])))
    solid = free.end > free.start
    return these.within(Intervals(free.start[solid], free.end[solid]))
