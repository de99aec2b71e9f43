"""What one re-run says of memory: its peak, by purpose and line, and what the step is made of."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from auditor.evidence.snapshot.file import snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.state_at import (
    Category,
    Holder,
    Owners,
    by_category,
    by_line,
    origins_of,
    state_after,
)
from auditor.evidence.table import Evidence
from auditor.model import Site
from auditor.recordings.folder import Recording
from auditor.recordings.schema.data import BatchRow, LoaderRow
from auditor.recordings.schema.other_runs import (
    PlannedBlocksRow,
    PlannedChangeRow,
    PlannedInputRow,
    PlannedOptimizerRow,
)
from auditor.recordings.schema.run import StepRow, known
from auditor.recordings.schema.sync import CourseRow
from auditor.rule import NotLooked

BEFORE, STEP, UPDATE = "before the steps", "forward and backward", "optimizer's step"
"""Phases of a run, each with a peak of its own: they grow with the batch in their own ways."""


@dataclass(frozen=True)
class Loader:
    """A DataLoader that fed the steps, by its constructor's call; ``size`` None: batch sampler."""

    file: str
    line: int
    size: int | None
    samples: int | None
    batch_bytes: float
    even: bool = True
    """All batches seen had as many bytes."""


@dataclass(frozen=True)
class Measured:
    """One re-run. Sizes in bytes, ``seconds`` of the whole process."""

    allocated: int
    reserved: int
    steps: int
    phases: Mapping[str, int] = field(default_factory=dict)
    purposes: tuple[tuple[str, int], ...] = ()
    holder: str = ""
    """The line that holds most of the peak, or why no line is known."""
    holder_bytes: int = 0
    varies: float = 0.0
    """By what share the steps after the first differ in their peaks."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Of what the outermost modules were given in a step."""
    autocast: bool = False
    float32: bool = False
    blocks: PlannedBlocksRow | None = None
    blocks_at: Site | None = None
    optimizers: tuple[PlannedOptimizerRow, ...] = ()
    optimizer_at: Site | None = None
    changed: frozenset[str] = frozenset()
    loaders: tuple[Loader, ...] = ()
    sized: tuple[str, ...] = ()
    """Lines of operators whose result has a size that depends on values (null device)."""
    seconds: float = 0.0

    def purpose(self, name: str) -> int:
        """Bytes that the peak holds for something."""
        return dict(self.purposes).get(name, 0)


def measured(recording: Recording, seconds: float) -> Measured:
    """From the recording of a re-run that completed a step."""
    evidence = Evidence(recording)
    steps = recording.rows(StepRow)
    owners, course = Owners(evidence), None
    with suppress(NotLooked, IndexError):
        course = evidence.get(Allocations).devices[0]
    counted = [(known(row.peak_allocated) or 0, known(row.peak_reserved) or 0) for row in steps]
    allocated, reserved = (max(column, default=0) for column in zip(*counted, strict=True))
    if course is not None:
        allocated = max(allocated, course.peak_allocated)
        reserved = max(reserved, course.peak_reserved)
    purposes, holder = _at_peak(evidence, course, owners)
    inputs = recording.rows(PlannedInputRow)
    blocks = max(recording.rows(PlannedBlocksRow), key=lambda row: row.n * row.bytes, default=None)
    optimizers = tuple(recording.rows(PlannedOptimizerRow))
    phases, varies = _phases(course, owners, allocated)
    sized = {number for row in recording.rows(CourseRow) for number in row.sized}
    return Measured(
        allocated=allocated,
        reserved=reserved,
        steps=len(steps),
        phases=phases,
        purposes=tuple((each.name, each.size) for each in purposes),
        holder=holder.label if holder is not None else "",
        holder_bytes=holder.size if holder is not None else 0,
        varies=varies,
        shapes=_shapes(inputs),
        autocast=any(row.autocast for row in inputs),
        float32=any(row.halvable for row in inputs),
        blocks=blocks,
        blocks_at=_site(recording, None if blocks is None else blocks.at),
        optimizers=optimizers,
        optimizer_at=_site(recording, next((r.at for r in optimizers if r.at is not None), None)),
        changed=frozenset(row.name for row in recording.rows(PlannedChangeRow) if row.n),
        loaders=tuple(_loaders(recording)),
        sized=tuple(str(recording.site(number)) for number in sorted(sized)),
        seconds=seconds,
    )


def _at_peak(
    evidence: Evidence, course: Course | None, owners: Owners
) -> tuple[tuple[Category, ...], Holder | None]:
    """What the peak was for, and the line that held most of it."""
    if course is None:
        return (), None
    data, device = snapshot_of(evidence), course.device
    at = course.peak if course.allocated[course.peak] >= course.start_allocated else -1
    blocks = state_after(data, device, at).blocks
    holders = by_line(blocks, origins_of(evidence))
    trace = data.trace(device)
    purposes = by_category(blocks, trace, max(at, 0), course.time_us, owners)
    return purposes, holders[0] if holders else None


def _phases(
    course: Course | None, owners: Owners, allocated: int
) -> tuple[Mapping[str, int], float]:
    """Peaks of the phases, and by what share the steps after the first differ."""
    if course is None or not course.time_us or not owners.steps:
        return {STEP: allocated}, 0.0
    peaks, by_step = {BEFORE: course.start_allocated}, [0] * len(owners.steps)
    number = -1
    for now, held in zip(course.time_us, course.allocated, strict=True):
        while number + 1 < len(owners.steps) and now >= owners.steps[number + 1]:
            number += 1
        phase = BEFORE if number < 0 else UPDATE if owners.updating(now) else STEP
        peaks[phase] = max(peaks.get(phase, 0), held)
        if number >= 0:
            by_step[number] = max(by_step[number], held)
    highest = max(peaks, key=peaks.__getitem__)
    peaks[highest] = max(peaks[highest], allocated)
    later = [each for each in by_step[1:] if each] or [1]
    return peaks, 1 - min(later) / max(later)


def _shapes(inputs: Sequence[PlannedInputRow]) -> tuple[tuple[int, ...], ...]:
    """Of the last step: all calls' tensors in order."""
    if not inputs:
        return ()
    last = (inputs[-1].pass_name, inputs[-1].step)
    rows = [row for row in inputs if (row.pass_name, row.step) == last]
    return tuple(tuple(shape) for row in rows for shape in row.shapes)


def _site(recording: Recording, number: int | None) -> Site | None:
    return None if number is None else recording.site(number)


def _loaders(recording: Recording) -> Iterator[Loader]:
    used: dict[int, list[BatchRow]] = {}
    for row in recording.rows(BatchRow):
        if row.n:
            used.setdefault(row.loader, []).append(row)
    for loader in recording.rows(LoaderRow):
        batches = used.get(loader.loader)
        site = _site(recording, loader.made_at)
        if not batches or site is None:
            continue
        size = sum(row.bytes or 0 for row in batches) / sum(row.n for row in batches)
        even = len({row.bytes / row.n for row in batches if row.bytes}) < 2
        yield Loader(site.file, site.line, loader.batch_size, loader.samples, size, even)
