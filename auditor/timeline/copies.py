"""Copies between host and device: how they were called, between which memories, how fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from auditor.timeline.naming import is_async_copy, mask
from auditor.timeline.trace import MEMCPY, Flags, Ints

if TYPE_CHECKING:
    from auditor.timeline.timeline import Timeline


@dataclass(frozen=True)
class Copies:
    """Every copy that a device made. Columns; ``call`` is -1 where the trace lacks it."""

    work: Ints
    """Row of :class:`Work`."""
    call: Ints
    """Row of :class:`Calls`."""
    to_device: Flags
    to_host: Flags
    pageable: Flags
    """Whether one side is pageable host memory: then even an asynchronous call waits."""
    asynchronous: Flags
    """Whether the host's call was an asynchronous one."""
    bytes: Ints
    """-1 where the trace does not say (AMD before 2024)."""
    ns: Ints
    """Time on the device."""
    step: Ints
    """Step in which the host called (in which the device began, without a call); -1 outside."""


def copies(line: Timeline) -> Copies:
    """Every copy that a device made."""
    trace, work = line.trace, line.trace.work
    rows = np.flatnonzero(work.kind == MEMCPY)
    call = line.launches.call_of_work[rows]
    known = call >= 0
    begin = work.start[rows].copy()
    begin[known] = trace.calls.start[call[known]]
    asynchronous = np.zeros(len(rows), np.bool_)
    asynchronous[known] = mask(trace.names, trace.calls.name[call[known]], is_async_copy)
    name = work.name[rows]
    return Copies(
        work=rows,
        call=call,
        to_device=mask(trace.names, name, lambda kind: "HtoD" in kind),
        to_host=mask(trace.names, name, lambda kind: "DtoH" in kind),
        pageable=mask(trace.names, name, lambda kind: "Pageable" in kind),
        asynchronous=asynchronous,
        bytes=work.bytes[rows],
        ns=work.end[rows] - work.start[rows],
        step=line.steps.of(begin),
    )
