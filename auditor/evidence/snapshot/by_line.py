"""Memory over time by the line that allocated it: a chart's few points, with every extreme."""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor.evidence.snapshot.file import SnapshotData, snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.state_at import Origins, origins_of, placed, state_after
from auditor.evidence.table import Evidence
from auditor.model import Site
from auditor.model.charts import Layers, Tone
from auditor.recordings.schema.run import StepRow
from auditor.rule import NotLooked

LINES = 8
"""Lines with a layer of their own at most."""

SEEN = 0.005
"""Share of the chart's height below which a layer is invisible: its line is among the rest."""

POINTS = 5000
"""Points of the whole chart, as in the other charts of the report."""

Owner = Site | str
OLDER, NO_FRAME, REST = (
    "from before the history",
    "no Python frame: from backward's threads",
    "all other lines",
)


@dataclass(frozen=True)
class OwnedHistory:
    """A history with the owner of each change: ``owner`` indexes ``owners``, -1: no change."""

    course: Course
    owners: tuple[Owner, ...]
    owner: Sequence[int]
    before: tuple[int, ...]
    """Bytes of each owner before the first event."""


def told(data: SnapshotData, course: Course, origins: Origins) -> OwnedHistory:
    """Who allocated and freed, event by event."""
    numbers: dict[Owner, int] = {OLDER: 0}
    at: dict[int, int] = {}
    before: defaultdict[int, int] = defaultdict(int)
    for block in state_after(data, course.device, -1).blocks:
        number = at[block.address] = numbers.setdefault(
            origins.site(block.frames) or OLDER, len(numbers)
        )
        before[number] += block.size
    before[0] += course.start_allocated - sum(before.values())  # blocks whose free was pending
    owner = array("i")
    for event in data.trace(course.device):
        number, action = -1, event["action"]
        if action == "alloc":
            site = origins.site(event.get("frames") or ()) or NO_FRAME
            number = at[event["addr"]] = numbers.setdefault(site, len(numbers))
        elif action == "free_requested":
            number = at.get(event["addr"], 0)
        owner.append(number)
    return OwnedHistory(
        course, tuple(numbers), owner, tuple(before[number] for number in range(len(numbers)))
    )


def layers(history: OwnedHistory, steps: Sequence[tuple[float, str]], *, note: str) -> Layers:
    """The chart; ``steps`` are times in us since the epoch, with their names."""
    course = history.course
    at = positions(course, POINTS // (LINES + 3))
    moments = held_at(history, at)
    shown = largest(moments, LINES)
    owners = [history.owners[number] for number in shown]
    names = [owner if isinstance(owner, str) else placed(owner) for owner in owners]
    tones = [Tone(name, colour) for colour, name in enumerate(names, 1)]
    rest = set(range(len(history.owners))).difference(shown)
    rows = [tuple(held[number] for held in moments) for number in shown]
    others = tuple(sum(held[number] for number in rest) for held in moments)
    stacked = [*zip(tones, rows, strict=True), *([(Tone(REST, -1), others)] if any(others) else [])]
    times = course.time_us
    by_time = len(times) > 1 and times[-1] > times[0]

    def place_of(index: int) -> float:
        return float(times[index] - times[0]) if by_time else float(index)

    marks = [(place_of(index), "out of memory") for index in course.ooms]
    for us, name in steps:
        if times and times[0] <= us <= times[-1]:
            marks.append((us - times[0] if by_time else float(bisect_left(times, us)), name))
    return Layers(
        title=f"Memory on cuda:{course.device} over time, by the line that allocated it",
        note=note,
        x_unit="us" if by_time else "event",
        x=tuple(map(place_of, at)),
        layers=tuple(tone for tone, _ in stacked),
        held=tuple(row for _, row in stacked),
        reserved=tuple(course.reserved[index] for index in at),
        marks=tuple(marks),
        events=len(course.reserved),
        codes=("MEM", "GRAPH", "SYNC012"),
    )


def positions(course: Course, limit: int) -> tuple[int, ...]:
    """Events to show: first, last, and of each stretch those with most and least memory."""
    count = len(course.reserved)
    if count <= limit:
        return tuple(range(count))
    stretches = limit // 2
    while True:
        found = {0, count - 1}
        for number in range(stretches):
            start, end = number * count // stretches, (number + 1) * count // stretches
            found.update(
                _extremes(course.allocated, start, end), _extremes(course.reserved, start, end)
            )
        if len(found) <= limit:
            return tuple(sorted(found))
        stretches = stretches * 3 // 4


def _extremes(column: Sequence[int], start: int, end: int) -> tuple[int, ...]:
    part = column[start:end]
    low, high = min(part), max(part)
    return (start + part.index(low), start + part.index(high)) if low < high else ()


def held_at(history: OwnedHistory, at: Sequence[int]) -> list[tuple[int, ...]]:
    """Bytes of each owner after these events (sorted)."""
    now, last, held = list(history.before), history.course.start_allocated, []
    wanted = set(at)
    changes = zip(history.owner, history.course.allocated, strict=True)
    for index, (number, total) in enumerate(changes):
        if number >= 0:
            now[number] += total - last
        last = total
        if index in wanted:
            held.append(tuple(now))
    return held


def largest(moments: Sequence[tuple[int, ...]], count: int) -> tuple[int, ...]:
    """The owners that ever held most, the steadiest first: it lies at the bottom."""
    columns = list(zip(*moments, strict=True))
    most = [max(column) for column in columns]
    mean = [sum(column) / len(column) for column in columns]
    least = SEEN * max((sum(held) for held in moments), default=0)
    chosen = sorted(
        (number for number, high in enumerate(most) if high > least),
        key=lambda number: -most[number],
    )[:count]
    return tuple(sorted(chosen, key=lambda number: -mean[number] / most[number]))


# -- charts ----------------------------------------------------------------------------------------

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
    """A chart of every device; empty if the recording holds no history that can be read."""
    try:
        courses = evidence.get(Allocations).devices
    except NotLooked:
        return ()  # a chart is no verdict: the rules say why the snapshot tells nothing
    used = [course for course in courses if course.peak_reserved]
    most = sorted(used, key=lambda course: (-course.peak_reserved, course.device))[:DEVICES]
    return tuple(_chart(evidence, course, predicted=predicted) for course in most)


def _chart(evidence: Evidence, course: Course, *, predicted: bool) -> Layers:
    data, origins = snapshot_of(evidence), origins_of(evidence)
    how = PREDICTED_NULL if evidence.recording.device.null else PREDICTED
    said = f"{how}{TIMES_SAID}" if predicted else ""
    history = told(data, course, origins)
    about = (
        "Memory allocated before the history began has no line."
        if course.starts_late
        else "The history begins before the first allocation."
    )
    return layers(history, list(_steps(evidence)), note=f"{said}{about}")


def _steps(evidence: Evidence) -> Iterator[tuple[float, str]]:
    """When each step of the snapshot's run began, on the clock of snapshots, and its name."""
    again, snapshot = evidence.recording.to_oom, evidence.recording.snapshot
    of_it = again is not None and snapshot is not None and snapshot.parent == again.folder
    rows = again.rows(StepRow) if again is not None and of_it else evidence.rows(StepRow)
    for number, row in enumerate(rows):
        if row.unix_us:
            yield row.unix_us, f"step {number}"
