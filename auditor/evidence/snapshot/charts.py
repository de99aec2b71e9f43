"""The memory charts of a report: each device's memory over time and its segments, from whatever
snapshot the recording holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.snapshot.by_line import LINES, REST, Owner, layers, named, told
from auditor.evidence.snapshot.by_purpose import told_by_purpose
from auditor.evidence.snapshot.file import Event, SnapshotData, snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.owners import Owners
from auditor.evidence.snapshot.segments import FREE as UNUSED
from auditor.evidence.snapshot.segments import Origins, Snapshot, origins_of
from auditor.evidence.table import Evidence
from auditor.model.charts import Bar, Lanes, Layers, Tone
from auditor.recordings.schema.run import StepRow
from auditor.rule import NotLooked

NO_LINE = "no line known"

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
PURPOSES_SAID = (
    "What an optimizer's step worked with is known by its address; what a step made and nobody "
    "freed counts as kept from the beginning of the next step on."
)
ROWS_SAID = (
    "Read it row by row: every row holds the same number of bytes, the largest segment comes "
    "first, ticks part segments."
)


def memory_charts(
    evidence: Evidence, *, predicted: bool
) -> tuple[tuple[Layers, ...], tuple[Lanes, ...]]:
    """Both kinds of chart of every device; empty where the recording holds no snapshot that can be
    read.
    """
    try:
        courses, now = _courses(evidence), evidence.get(Snapshot)
    except NotLooked:
        return (), ()  # a chart is no verdict: the rules say why the snapshot tells nothing
    drawn = [
        _device(evidence, device, courses.get(device), predicted=predicted)
        for device in _devices(now, courses)
    ]
    return tuple(chart for charts, _ in drawn for chart in charts), tuple(
        chart for _, chart in drawn if chart
    )


def _said(evidence: Evidence, *, predicted: bool) -> str:
    if not predicted:
        return ""
    return PREDICTED_NULL if evidence.recording.device.null else PREDICTED


def _courses(evidence: Evidence) -> dict[int, Course]:
    try:
        return {course.device: course for course in evidence.get(Allocations).devices}
    except NotLooked:
        return {}


def _devices(now: Snapshot, courses: dict[int, Course]) -> list[int]:
    held = {each.device: each.reserved for each in now.devices}
    peaks = {device: course.peak_reserved for device, course in courses.items()}
    most = {
        device: max(held.get(device, 0), peaks.get(device, 0))
        for device in held.keys() | peaks.keys()
    }
    return sorted(
        (device for device, size in most.items() if size),
        key=lambda device: (-most[device], device),
    )[:DEVICES]


def _device(
    evidence: Evidence, device: int, course: Course | None, *, predicted: bool
) -> tuple[tuple[Layers, ...], Lanes | None]:
    said, data, origins = (
        _said(evidence, predicted=predicted),
        snapshot_of(evidence),
        origins_of(evidence),
    )
    if course is None:
        return (), _map_alone(data, device, origins, note=f"{said}{ROWS_SAID}")
    history, steps = told(data, course, origins), list(_steps(evidence))
    times = TIMES_SAID if predicted else ""
    chart, tones = layers(history, steps, note=f"{said}{times}{_about(course)}")
    purposes = told_by_purpose(data, course, Owners(evidence))
    other = (
        layers(purposes, steps, note=f"{said}{times}{PURPOSES_SAID}", by="purpose")[:1]
        if purposes
        else ()
    )

    def owner(address: int, _: Event) -> Owner:
        return history.owners[history.last_at.get(address, 0)]

    moment = "when memory ran out" if data.at_oom else "at the end of the history"
    moment = f"Predicted, {moment}." if predicted else f"{moment.capitalize()}."
    return (chart, *other), segment_map(
        data.of(device), device, tones, owner, note=f"{moment} {ROWS_SAID}"
    )


def _about(course: Course) -> str:
    if course.starts_late:
        return "What was there before the history began has no line."
    return "The history begins before the first allocation."


def _steps(evidence: Evidence) -> Iterator[tuple[float, str]]:
    """When each step of the run that the snapshot is of began on the clock of snapshots, and its
    name.
    """
    own, again, snapshot = evidence.recording, evidence.recording.rerun, evidence.recording.snapshot
    to_oom = evidence.recording.to_oom
    if to_oom is not None:
        again = to_oom
    run = (
        again
        if again is not None and snapshot is not None and snapshot.parent == again.folder
        else own
    )
    for number, row in enumerate(
        evidence.rows(StepRow) if again is None else run.own_rows(StepRow)
    ):
        if row.unix_us:
            yield row.unix_us, f"step {number}"


def _map_alone(data: SnapshotData, device: int, origins: Origins, *, note: str) -> Lanes | None:
    """The map where nothing but the moment of the snapshot is known."""

    def owner(_: int, block: Event) -> Owner:
        return origins.site(block.get("frames") or ()) or NO_LINE

    held: dict[Owner, int] = {}
    for block in (
        block
        for segment in data.of(device)
        for block in segment["blocks"]
        if block["state"] != UNUSED
    ):
        whose = owner(0, block)
        held[whose] = held.get(whose, 0) + int(block["size"])
    shown = sorted(held, key=lambda whose: -held[whose])[:LINES]
    tones = {whose: Tone(named(whose), number) for number, whose in enumerate(shown, 1)}
    return segment_map(data.of(device), device, tones, owner, note=note)


# -- segment map -----------------------------------------------------------------------------------
# The segment map of a device: its reserved memory laid out in rows of equal size, blocks by line,
# free parts visible.


ROWS = 16
"""Rows at most; each holds a power of two of bytes."""

PARTS = 250
"""A row is drawn in parts of at least this fraction: what is smaller is joined with its
neighbours.
"""

EDGES, APART = 800, 80
"""Borders of segments that are drawn at most, and the fraction of a row by which they are apart at
least.
"""
FREE = Tone("free", 0)


@dataclass(frozen=True)
class _Piece:
    start: int
    size: int
    tone: Tone
    label: str
    blocks: int = 1


OwnerOf = Callable[[int, Event], Owner]
"""Who allocated a live block, from its address and what the snapshot says of it."""


def segment_map(
    segments: Sequence[Event],
    device: int,
    tones: Mapping[Owner, Tone],
    owner: OwnerOf,
    *,
    note: str,
) -> Lanes | None:
    """The map; None where nothing is reserved. The largest segments come first."""
    ordered = sorted(segments, key=lambda segment: -int(segment["total_size"]))
    reserved = sum(int(segment["total_size"]) for segment in ordered)
    if not reserved:
        return None
    row = 1 << max(0, (-(-reserved // ROWS) - 1).bit_length())
    pieces = list(_pieces(ordered, tones, owner))
    drawn = list(_joined(_wrapped(pieces, row), row // PARTS, row))
    known = tuple(dict.fromkeys((FREE, *tones.values(), Tone(REST, -1))))
    used = tuple(
        tone for tone in known if tone is FREE or any(piece.tone == tone for piece in drawn)
    )
    return Lanes(
        kind="segments",
        title=f"Segments of cuda:{device}, and the lines whose blocks lie in them",
        note=f"{note} {amounts.size(sum(piece.size for piece in pieces if piece.tone is FREE))} of it are free.",
        unit="bytes",
        lanes=tuple(f"{number * row}" for number in range(-(-reserved // row))),
        tones=used,
        bars=tuple(
            Bar(p.start // row, float(p.start % row), float(p.size), used.index(p.tone), p.label)
            for p in drawn
        ),
        edges=tuple(_edges(ordered, row)),
        total=len(pieces),
        codes=("MEM004", "MEM005", "MEM008", "MEM009", "MEM015"),
    )


def _pieces(
    segments: Sequence[Event], tones: Mapping[Owner, Tone], owner: OwnerOf
) -> Iterator[_Piece]:
    place = 0
    for number, segment in enumerate(segments, 1):
        address, room = int(segment.get("address", 0)), int(segment["total_size"])
        for block in segment["blocks"]:
            # a damaged block ends with its segment
            size, live = (min(int(block["size"]), room), block["state"] != UNUSED)
            room -= size
            whose = owner(address, block) if live else "free"
            tone = tones.get(whose, Tone(REST, -1)) if live else FREE
            yield _Piece(place, size, tone, f"segment {number} of {len(segments)}")
            place, address = place + size, address + size


def _wrapped(pieces: Sequence[_Piece], row: int) -> Iterator[_Piece]:
    """Each piece cut where a row ends."""
    for piece in pieces:
        start, end = piece.start, piece.start + piece.size
        while start < end:
            stop = min(end, (start // row + 1) * row)
            yield _Piece(start, stop - start, piece.tone, piece.label)
            start = stop


def _joined(pieces: Iterator[_Piece], least: int, row: int) -> Iterator[_Piece]:
    """Pieces smaller than ``least`` joined until they are as large, under the tone that most of
    their bytes have.
    """
    small: list[_Piece] = []
    size = 0
    for piece in pieces:
        if small and (piece.size >= least or piece.start // row != small[0].start // row):
            yield _join(small)
            small, size = [], 0
        if piece.size >= least:
            yield piece
            continue
        small.append(piece)
        size += piece.size
        if size >= least:
            yield _join(small)
            small, size = [], 0
    if small:
        yield _join(small)


def _join(small: Sequence[_Piece]) -> _Piece:
    if len(small) == 1:
        return small[0]
    shares: dict[Tone, int] = {}
    for piece in small:
        shares[piece.tone] = shares.get(piece.tone, 0) + piece.size
    size = sum(shares.values())
    free = shares.get(FREE, 0) / size if size else 0.0
    most = max(shares, key=lambda tone: shares[tone])
    return _Piece(
        small[0].start,
        size,
        most,
        f"{len(small)} small pieces, {amounts.percent(free)} free",
        len(small),
    )


def _edges(segments: Sequence[Event], row: int) -> Iterator[tuple[int, float]]:
    """Borders between segments, as far as they can be told apart."""
    place, last, given = 0, -row, 0
    for segment in segments:
        if place - last >= row // APART and given < EDGES:
            yield place // row, float(place % row)
            last, given = place, given + 1
        place += int(segment["total_size"])
