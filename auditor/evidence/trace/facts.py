"""The trace of a recording, or one that stands alone, as the tables of :mod:`auditor.timeline`; and
what a report shows of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.timeline import Timeline

HOST = 0


@dataclass(frozen=True)
class Operator:
    """One operator over the traced steps: calls per step and self time on the host in us per step,
    under the profiler.
    """

    name: str
    calls: float
    self_us: float


@dataclass(frozen=True)
class TraceFacts:
    """Facts of a trace. ``step_us`` are the steps' times under the profiler, empty where the trace
    marks none or a null device wrote it.
    """

    steps: int
    events: int
    operators: tuple[Operator, ...]
    step_us: tuple[float, ...] = ()
    devices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    null_device: bool = False
    device_missing: bool = False
    """It lists a GPU and holds none of its work."""
    step_numbers: tuple[int, ...] = ()


def timeline_of(evidence: Evidence) -> Timeline:
    """The recording's trace, read once. Raises :class:`NotLooked` where none can be read."""
    return evidence.once(_load)


def timed_timeline(evidence: Evidence) -> Timeline:
    """The same, for times. Raises :class:`NotLooked` for a null device's, too."""
    line = timeline_of(evidence)
    if line.trace.info.null_device:
        raise NotLooked("the trace comes from a null device, whose work has no length")
    return line


def need_a_device(*, shown: bool, missing: bool) -> None:
    """Raises :class:`NotLooked` where a trace shows no GPU, or none of its work (``missing``)."""
    if missing:
        raise NotLooked(
            "the trace lists a GPU and holds none of its work (the profiler could not record it)"
        )
    if not shown:
        raise NotLooked("the trace shows no GPU")


def gpu_timeline(evidence: Evidence) -> Timeline:
    """The same. Raises :class:`NotLooked` as well where the trace shows no GPU at work."""
    line = timed_timeline(evidence)
    if line.device_missing or not line.devices:
        raise NotLooked("the trace shows no GPU")
    return line


def kernel_timeline(evidence: Evidence) -> Timeline:
    """The same. Raises :class:`NotLooked` as well where the first GPU ran no kernel."""
    line = gpu_timeline(evidence)
    if not line.devices[0].kernels:
        raise NotLooked("the trace shows no kernel of a GPU")
    return line


def _load(evidence: Evidence) -> Timeline:
    path = evidence.recording.trace
    if path is None:
        raise NotLooked("no trace was recorded")
    from auditor.timeline import Timeline

    try:
        return Timeline.of(path)
    except AuditProblem as problem:
        raise NotLooked(problem.message) from None


def read(evidence: Evidence) -> TraceFacts | None:
    """Facts of the recording's trace; None if there is none, or it cannot be read."""
    try:
        return facts_of(timeline_of(evidence))
    except NotLooked:
        return None


def unread(evidence: Evidence) -> tuple[str, ...]:
    """Why the recording's trace was not read, where it has one."""
    if evidence.recording.trace is None:
        return ()
    try:
        timeline_of(evidence)
    except NotLooked as problem:
        return (str(problem),)
    return ()


def _unnamed(line: Timeline) -> tuple[str, ...]:
    """What is said of devices that worked, where the file has no table of them."""
    if not line.devices:
        return ()
    return (
        "a GPU that the trace does not name"
        if len(line.devices) == 1
        else f"{len(line.devices)} GPUs without names",
    )


def facts_of(line: Timeline) -> TraceFacts:
    """The same of a timeline."""
    steps = line.steps
    count = steps.count
    operators = tuple(
        Operator(row.name, row.calls / count, row.ns / 1e3 / count) for row in line.operators
    )
    return TraceFacts(
        device_missing=line.device_missing,
        steps=steps.count if steps.marked else 0,
        events=line.trace.events,
        operators=operators,
        step_us=tuple(((steps.end - steps.start) / 1e3).tolist())
        if steps.marked and not line.trace.info.null_device
        else (),
        devices=tuple(
            dict.fromkeys(device.name for device in line.trace.info.devices if device.name)
        )
        or _unnamed(line),
        warnings=line.trace.warnings,
        null_device=line.trace.info.null_device,
        step_numbers=steps.numbers if steps.marked else (),
    )
