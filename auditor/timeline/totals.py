"""Totals by name: operators with their own time on host and device, kernels, and runtime calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from auditor.timeline.device import Launches
from auditor.timeline.steps import Steps
from auditor.timeline.trace import KERNEL, Ints, Trace
from auditor.timeline.tree import CallTree


@dataclass(frozen=True)
class OperatorTotal:
    """An operator over the whole trace. Times in ns."""

    name: str
    calls: int
    host_ns: int
    """Sum of durations (an operator that calls itself counts twice)."""
    self_ns: int
    """Host time without the operators and runtime calls inside."""
    device_ns: int
    """Time of the device work that the operator itself launched."""


@dataclass(frozen=True)
class KernelTotal:
    """A kernel over the whole trace. Time in ns, summed over concurrent runs."""

    name: str
    calls: int
    ns: int


@dataclass(frozen=True)
class CallTotal:
    """A runtime or driver call over the whole trace. Times in ns."""

    name: str
    calls: int
    ns: int
    in_steps: int
    ns_in_steps: int


def launching_operator(trace: Trace, tree: CallTree, joined: Launches) -> Ints:
    """For each device work the row of the innermost operator or annotation around its launch, -1
    where not known.
    """
    call = joined.call_of_work
    result: Ints = np.full(len(call), -1, np.int64)
    known = call >= 0
    result[known] = tree.parent[call[known] + tree.operators]
    return result


def operator_totals(trace: Trace, tree: CallTree, launcher: Ints) -> tuple[OperatorTotal, ...]:
    """Operators (no annotations), the longest own host time first."""
    operators, size = trace.operators, len(trace.names)
    name = np.where(operators.annotation, size, operators.name).astype(
        np.intp
    )  # annotations go behind the last name
    by_operator = np.flatnonzero((launcher >= 0) & (launcher < tree.operators))
    work_ns = (trace.work.end - trace.work.start)[by_operator]
    calls = np.bincount(name, minlength=size)[:size]
    host = np.bincount(name, weights=operators.end - operators.start, minlength=size)
    own = np.bincount(name, weights=tree.self_ns()[: tree.operators], minlength=size)
    launched = np.bincount(name[launcher[by_operator]], weights=work_ns, minlength=size)
    found = [
        OperatorTotal(
            trace.names[code],
            int(calls[code]),
            int(host[code]),
            int(own[code]),
            int(launched[code]),
        )
        for code in np.flatnonzero(calls).tolist()
    ]
    return tuple(sorted(found, key=lambda one: (-one.self_ns, one.name)))


def kernel_totals(trace: Trace) -> tuple[KernelTotal, ...]:
    """Kernels of all devices, the longest first."""
    work = trace.work
    kernels = work.kind == KERNEL
    calls = np.bincount(work.name[kernels], minlength=len(trace.names))
    time = np.bincount(
        work.name[kernels], weights=(work.end - work.start)[kernels], minlength=len(trace.names)
    )
    found = [
        KernelTotal(trace.names[code], int(calls[code]), int(time[code]))
        for code in np.flatnonzero(calls).tolist()
    ]
    return tuple(sorted(found, key=lambda one: (-one.ns, one.name)))


def call_totals(trace: Trace, steps: Steps) -> tuple[CallTotal, ...]:
    """Runtime calls by name, the longest first. Calls belong to the step in which they start."""
    calls, size = trace.calls, len(trace.names)
    ns = calls.end - calls.start
    inside = steps.of(calls.start) >= 0
    number, time = (
        np.bincount(calls.name, minlength=size),
        np.bincount(calls.name, weights=ns, minlength=size),
    )
    within = np.bincount(calls.name[inside], minlength=size)
    time_within = np.bincount(calls.name[inside], weights=ns[inside], minlength=size)
    found = [
        CallTotal(
            trace.names[code],
            int(number[code]),
            int(time[code]),
            int(within[code]),
            int(time_within[code]),
        )
        for code in np.flatnonzero(number).tolist()
    ]
    return tuple(sorted(found, key=lambda one: (-one.ns, one.name)))
