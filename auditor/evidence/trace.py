"""The trace of a recording, or one that stands alone, as the tables of :mod:`auditor.timeline`; and what a report shows of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from auditor.errors import AuditProblem
from auditor.recording import Recording
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.timeline import Timeline

HOST, LOADED = 0, "_timeline"


@dataclass(frozen=True)
class Operator:
    """One operator over the traced steps: calls per step and self time on the host in us per step, under the profiler."""

    name: str
    calls: float
    self_us: float


@dataclass(frozen=True)
class TraceFacts:
    """Facts of a trace. ``step_us`` are the steps' times under the profiler, empty where the trace marks none.

    ``host_peak_bytes`` is the largest total that torch's CPU allocator reported, None without memory events.
    """

    steps: int
    events: int
    operators: tuple[Operator, ...]
    host_peak_bytes: int | None
    step_us: tuple[float, ...] = ()
    devices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    step_numbers: tuple[int, ...] = ()


def timeline_of(recording: Recording) -> Timeline:
    """The recording's trace, read once. Raises :class:`NotLooked` where there is none or it cannot be read."""
    kept = recording.__dict__.get(LOADED)
    if kept is None:
        kept = recording.__dict__[LOADED] = _load(recording.trace)
    if isinstance(kept, NotLooked):
        raise kept
    return cast("Timeline", kept)


def _load(path: Path | None) -> Timeline | NotLooked:
    if path is None:
        return NotLooked("no trace was recorded")
    from auditor.timeline import Timeline

    try:
        return Timeline.of(path)
    except AuditProblem as problem:
        return NotLooked(problem.message)


def read(recording: Recording) -> TraceFacts | None:
    """Facts of the recording's trace; None if there is none, or it cannot be read."""
    try:
        return facts_of(timeline_of(recording))
    except NotLooked:
        return None


def _unnamed(line: Timeline) -> tuple[str, ...]:
    """What is said of devices that worked, where the file has no table of them."""
    if not line.devices:
        return ()
    return ("a GPU that the trace does not name" if len(line.devices) == 1 else f"{len(line.devices)} GPUs without names",)


def facts_of(line: Timeline) -> TraceFacts:
    """The same of a timeline."""
    steps = line.steps
    count = max(1, steps.count)
    operators = tuple(Operator(row.name, row.calls / count, row.self_ns / 1e3 / count) for row in line.operators)
    peak = max((use.peak_allocated for use in line.memory if use.device_type == HOST), default=-1)
    return TraceFacts(
        steps=steps.count if steps.marked else 0,
        events=line.trace.events,
        operators=operators,
        host_peak_bytes=peak if peak > 0 else None,
        step_us=tuple(((steps.end - steps.start) / 1e3).tolist()) if steps.marked else (),
        devices=tuple(dict.fromkeys(device.name for device in line.trace.info.devices if device.name)) or _unnamed(line),
        warnings=line.trace.warnings,
        step_numbers=steps.numbers if steps.marked else (),
    )
