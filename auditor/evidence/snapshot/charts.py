"""The memory charts of a report: each device's memory over time, from whatever snapshot there is."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.evidence.snapshot.by_line import layers, told
from auditor.evidence.snapshot.file import snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.segments import origins_of
from auditor.evidence.table import Evidence
from auditor.model.charts import Layers
from auditor.recordings.schema.run import StepRow
from auditor.rule import NotLooked

DEVICES = 4
"""Devices that are drawn, those with most memory."""

PREDICTED = (
    "Predicted: the GPU path was rehearsed on the CPU, and its storages were followed through a "
    "simulated allocator. "
)
PREDICTED_NULL = (
    "Predicted: torch's own allocator ran on a null device, without a GPU, whose kernels compute "
    "nothing. "
)
TIMES_SAID = "The times are the CPU's. "


def memory_charts(evidence: Evidence, *, predicted: bool) -> tuple[Layers, ...]:
    """A chart of every device; empty where the recording holds no history that can be read."""
    try:
        courses = evidence.get(Allocations).devices
    except NotLooked:
        return ()  # a chart is no verdict: the rules say why the snapshot tells nothing
    used = [course for course in courses if course.peak_reserved]
    most = sorted(used, key=lambda course: (-course.peak_reserved, course.device))[:DEVICES]
    return tuple(_chart(evidence, course, predicted=predicted) for course in most)


def _chart(evidence: Evidence, course: Course, *, predicted: bool) -> Layers:
    data, origins = snapshot_of(evidence), origins_of(evidence)
    said = (
        "" if not predicted else PREDICTED_NULL if evidence.recording.device.null else PREDICTED
    ) + (TIMES_SAID if predicted else "")
    history = told(data, course, origins)
    return layers(history, list(_steps(evidence)), note=f"{said}{_about(course)}")


def _about(course: Course) -> str:
    if course.starts_late:
        return "What was there before the history began has no line."
    return "The history begins before the first allocation."


def _steps(evidence: Evidence) -> Iterator[tuple[float, str]]:
    """When each step of the snapshot's run began, on the clock of snapshots, and its name."""
    again, snapshot = evidence.recording.to_oom, evidence.recording.snapshot
    of_it = again is not None and snapshot is not None and snapshot.parent == again.folder
    rows = again.rows(StepRow) if again is not None and of_it else evidence.rows(StepRow)
    for number, row in enumerate(rows):
        if row.unix_us:
            yield row.unix_us, f"step {number}"
