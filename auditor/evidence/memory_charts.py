"""The memory charts of a report: each device's memory over time and its segments, from whatever snapshot the recording holds."""

from __future__ import annotations

from collections.abc import Iterator

from auditor.evidence.owners import Owners
from auditor.evidence.snapshot import FREE as UNUSED
from auditor.evidence.snapshot import Origins, Snapshot, origins_of
from auditor.evidence.snapshot_course import Allocations, Course
from auditor.evidence.snapshot_file import Event, SnapshotData, snapshot_of
from auditor.evidence.snapshot_layers import LINES, Owner, layers, named, told
from auditor.evidence.snapshot_map import segment_map
from auditor.evidence.snapshot_purposes import told_by_purpose
from auditor.pictures import Lanes, Layers, Tone
from auditor.recording import Recording
from auditor.rule import NotLooked

NO_LINE = "no line known"

DEVICES = 4
"""Devices that are drawn, those with most memory."""

PREDICTED = "Predicted: the GPU path was rehearsed on the CPU, and its storages were followed through a simulated allocator. "
TIMES_SAID = "The times are the CPU's. "
PURPOSES_SAID = (
    "What an optimizer's step worked with is known by its address; what a step made and nobody freed counts as kept from the "
    "beginning of the next step on."
)
ROWS_SAID = "Read it row by row: every row holds the same number of bytes, the largest segment comes first, ticks part segments."


def memory_charts(recording: Recording, *, predicted: bool) -> tuple[tuple[Layers, ...], tuple[Lanes, ...]]:
    """Both kinds of chart of every device; empty where the recording holds no snapshot that can be read."""
    try:
        courses, now = _courses(recording), Snapshot.build(recording)
    except NotLooked:
        return (), ()  # a chart is no verdict: the rules say why the snapshot tells nothing
    drawn = [_device(recording, device, courses.get(device), predicted=predicted) for device in _devices(now, courses)]
    return tuple(chart for charts, _ in drawn for chart in charts), tuple(chart for _, chart in drawn if chart)


def _courses(recording: Recording) -> dict[int, Course]:
    try:
        return {course.device: course for course in Allocations.build(recording).devices}
    except NotLooked:
        return {}


def _devices(now: Snapshot, courses: dict[int, Course]) -> list[int]:
    held = {each.device: each.reserved for each in now.devices}
    peaks = {device: course.peak_reserved for device, course in courses.items()}
    most = {device: max(held.get(device, 0), peaks.get(device, 0)) for device in held.keys() | peaks.keys()}
    return sorted((device for device, size in most.items() if size), key=lambda device: (-most[device], device))[:DEVICES]


def _device(
    recording: Recording, device: int, course: Course | None, *, predicted: bool
) -> tuple[tuple[Layers, ...], Lanes | None]:
    said, data, origins = PREDICTED if predicted else "", snapshot_of(recording), origins_of(recording)
    if course is None:
        return (), _map_alone(data, device, origins, note=f"{said}{ROWS_SAID}")
    history, steps = told(data, course, origins), list(_steps(recording))
    times = TIMES_SAID if predicted else ""
    chart, tones = layers(history, steps, note=f"{said}{times}{_about(course)}")
    purposes = told_by_purpose(data, course, Owners(recording))
    other = layers(purposes, steps, note=f"{said}{times}{PURPOSES_SAID}", by="purpose")[:1] if purposes else ()

    def owner(address: int, _: Event) -> Owner:
        return history.owners[history.last_at.get(address, 0)]

    moment = "when memory ran out" if data.at_oom else "at the end of the history"
    moment = f"Predicted, {moment}." if predicted else f"{moment.capitalize()}."
    return (chart, *other), segment_map(data.of(device), device, tones, owner, note=f"{moment} {ROWS_SAID}")


def _about(course: Course) -> str:
    if course.starts_late:
        return "What was there before the history began has no line."
    return "The history begins before the first allocation."


def _steps(recording: Recording) -> Iterator[tuple[float, str]]:
    """When each step of the run that the snapshot is of began on the clock of snapshots, and its name."""
    again, snapshot = recording.rerun, recording.snapshot
    run = again if again is not None and snapshot is not None and snapshot.parent == again.folder else recording
    for number, row in enumerate(run.own_rows("steps")):
        if "unix_us" in row:
            yield float(row["unix_us"]), f"step {number}"


def _map_alone(data: SnapshotData, device: int, origins: Origins, *, note: str) -> Lanes | None:
    """The map where nothing but the moment of the snapshot is known."""

    def owner(_: int, block: Event) -> Owner:
        return origins.site(block.get("frames") or ()) or NO_LINE

    held: dict[Owner, int] = {}
    for block in (block for segment in data.of(device) for block in segment["blocks"] if block["state"] != UNUSED):
        whose = owner(0, block)
        held[whose] = held.get(whose, 0) + int(block["size"])
    shown = sorted(held, key=lambda whose: -held[whose])[:LINES]
    tones = {whose: Tone(named(whose), number) for number, whose in enumerate(shown, 1)}
    return segment_map(data.of(device), device, tones, owner, note=note)
