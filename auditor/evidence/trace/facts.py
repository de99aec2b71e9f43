"""The trace of a recording, or one alone, as tables, and what a report shows of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.errors import AuditProblem
from auditor.evidence.recorded.step_pattern import FEWEST_STEPS
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.timeline import Timeline
    from auditor.timeline.tree import UserFunction


HOST_MEMORY = 0


def timeline_of(evidence: Evidence) -> Timeline:
    """The recording's trace, read once. Raises :class:`NotLooked` if none can be read."""
    return evidence.once(_load)


def timed_timeline(evidence: Evidence) -> Timeline:
    """The trace, for rules about times. Raises :class:`NotLooked` for a null device's, too."""
    line = timeline_of(evidence)
    if line.trace.info.null_device:
        raise NotLooked("the trace comes from a null device, whose work has no length")
    return line


def need_a_device(*, shown: bool, missing: bool) -> None:
    """Raises :class:`NotLooked` if a trace shows no GPU, or none of its work (``missing``)."""
    if missing:
        raise NotLooked(
            "the trace lists a GPU and holds none of its work (the profiler could not record it)"
        )
    if not shown:
        raise NotLooked("the trace shows no GPU")


def gpu_timeline(evidence: Evidence) -> Timeline:
    """The trace, for rules about a GPU. Raises :class:`NotLooked` if it shows no GPU at work."""
    line = timed_timeline(evidence)
    if not line.devices:
        raise NotLooked("the trace shows no GPU")
    return line


def kernel_timeline(evidence: Evidence) -> Timeline:
    """The trace, for rules about kernels. Raises :class:`NotLooked` if the first GPU ran no kernel."""
    line = gpu_timeline(evidence)
    if not line.devices[0].kernels:
        raise NotLooked("the trace shows no kernel of a GPU")
    return line


def inside(site: Site | None) -> str:
    """In words: `` in train_step``; empty where that is not known."""
    return f" in {site.function}" if site is not None else ""


def _load(evidence: Evidence) -> Timeline:
    path = evidence.recording.trace
    if path is None:
        raise NotLooked("no trace was recorded")
    from auditor.timeline import Timeline

    try:
        return Timeline.of(path)
    except AuditProblem as problem:
        raise NotLooked(problem.message) from None


def read(evidence: Evidence) -> Timeline | None:
    """The recording's trace; None if there is none, or it cannot be read."""
    try:
        return timeline_of(evidence)
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


def devices(line: Timeline) -> tuple[str, ...]:
    """Names of its devices; of those that worked their number, where the file has no table."""
    named = dict.fromkeys(device.name for device in line.trace.info.devices if device.name)
    number = len(line.devices)
    unnamed = (
        "a GPU that the trace does not name" if number == 1 else f"{number} GPUs without names"
    )
    return tuple(named) or ((unnamed,) if number else ())


def step_us(line: Timeline) -> tuple[float, ...]:
    """Times of the steps under the profiler; empty if none is marked, or of a null device."""
    if not line.steps.marked or line.trace.info.null_device:
        return ()
    return tuple(((line.steps.end - line.steps.start) / 1e3).tolist())


# -- steps -----------------------------------------------------------------------------------------
# The steps of a trace and what their time was spent on.


PROFILER, OPTIMIZER = "ProfilerStep", "optimizer"
"""Words of :mod:`auditor.timeline.phases`, which is not imported here: it needs numpy."""


@dataclass(frozen=True)
class TraceStep:
    """One step, times in us. ``*_alone`` is the part of a time in which no (other) device work ran,
    ``*_slow`` of copies the part of that which pinned memory would not have needed (the price of
    the waits for them).
    """

    us: float
    busy_us: float = 0.0
    to_device_us: float = 0.0
    to_device_alone_us: float = 0.0
    loader_us: float = 0.0
    loader_alone_us: float = 0.0
    unknown_us: float = 0.0
    to_device_slow_us: float = 0.0
    to_host_us: float = 0.0
    to_host_alone_us: float = 0.0
    to_host_slow_us: float = 0.0


@dataclass(frozen=True)
class Silence:
    """The longest stretch of the steps in which the trace shows nothing.

    ``site`` is the user's function that ran, ``function`` the innermost one that holds the stretch,
    whoever wrote it.
    """

    us: float
    site: Site | None = None
    function: str = ""


@dataclass(frozen=True)
class TraceSteps(Table):
    """Steps in order of time. ``source``: how they were found; not ``marked``: the whole trace."""

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    steps: tuple[TraceStep, ...] = ()
    source: str = "whole trace"
    marked: bool = False
    device: bool = False
    """Whether the trace shows a device's work."""
    device_missing: bool = False
    """Whether it should show some and does not: nothing can be said of work beside the host."""
    loader: str = ""
    """The loader's iterator, ``_SingleProcessDataLoaderIter``; empty if none was recorded."""
    loader_site: Site | None = None
    """The function that asked for the batch that took longest, if the trace has Python frames."""
    silence: Silence | None = None

    @classmethod
    def build(cls, evidence: Evidence) -> TraceSteps:
        """From the trace."""
        line = timed_timeline(evidence)
        return cls(
            steps=_steps(line),
            source=line.steps.source,
            marked=line.steps.marked,
            device=bool(line.devices),
            device_missing=line.device_missing,
            loader=_loader(line.loader.names) if line.loader is not None else "",
            loader_site=_loader_site(line),
            silence=_silence(line),
        )

    @property
    def certain(self) -> bool:
        """Whether the profiler marked steps itself, and enough of them to tell what is usual."""
        return self.source == PROFILER and len(self.steps) >= FEWEST_STEPS

    @property
    def workers(self) -> str:
        """How the loader loads, in words."""
        return "num_workers=0" if "SingleProcess" in self.loader else "worker processes"

    @property
    def where(self) -> str:
        """What the shares are of, in words."""
        if not self.marked:
            return "the trace, which marks no steps"
        return ("the only step" if len(self.steps) == 1 else f"{len(self.steps)} steps") + (
            " (from one optimizer step to the next)" if self.source == OPTIMIZER else ""
        )

    def need_steps(self, least: int = 1) -> None:
        """Raises :class:`NotLooked` if the trace marks fewer steps than that."""
        if not self.marked:
            raise NotLooked("the trace marks no steps")
        if len(self.steps) < least:
            raise NotLooked(
                f"the trace holds {amounts.count(len(self.steps), 'step')}, {least} are needed"
            )

    def need_a_device(self) -> None:
        """Raises :class:`NotLooked` if the trace shows no device's work."""
        need_a_device(shown=self.device, missing=self.device_missing)

    def share(self, part: str) -> float:
        """Share of all steps' time that a field of :class:`TraceStep` takes."""
        return _share(self.steps, part)

    def mean(self, part: str) -> float:
        """Mean of a field of :class:`TraceStep` in us."""
        return (
            float(sum(getattr(step, part) for step in self.steps)) / len(self.steps)
            if self.steps
            else 0.0
        )

    def steady(self, part: str) -> float:
        """The share without the first step (loaders start, models are sent), if over two."""
        return _share(self.steps[1:] if len(self.steps) >= FEWEST_STEPS else self.steps, part)

    def recurs(self, part: str, share: float) -> bool:
        """Whether a part takes at least this share of two steps or more, the first left out."""
        return len([step for step in self.steps[1:] if getattr(step, part) >= share * step.us]) > 1

    def steps_above(self, part: str, share: float) -> int:
        """Steps of whose time a field of :class:`TraceStep` takes at least this share."""
        return sum(getattr(step, part) >= share * step.us for step in self.steps)


def _share(steps: tuple[TraceStep, ...], part: str) -> float:
    total = sum(step.us for step in steps)
    return float(sum(getattr(step, part) for step in steps)) / total if total else 0.0


def _steps(line: Timeline) -> tuple[TraceStep, ...]:
    named = (each.name.removesuffix("_us") for each in fields(TraceStep))
    columns = (getattr(line.composition, name) for name in named)
    return tuple(
        TraceStep(*row)
        for row in zip(*((column / 1e3).tolist() for column in columns), strict=True)
    )


def _loader(names: tuple[str, ...]) -> str:
    """The class in ``enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__``."""
    return names[0].partition("#")[2].partition(".")[0] or names[0]


def _loader_site(line: Timeline) -> Site | None:
    if line.loader is None:
        return None
    spans, rows = line.trace.operators, line.loader.rows
    longest = rows[[int((spans.end[rows] - spans.start[rows]).argmax())]]
    return _site(line.places_of(longest)[0])


def _silence(line: Timeline) -> Silence | None:
    start, end = line.composition.longest_unknown
    if end <= start:
        return None
    place, function = line.longest_unknown
    return Silence((end - start) / 1e3, _site(place), function)


def _site(place: UserFunction | None) -> Site | None:
    return Site(place.file, place.line, place.function) if place is not None else None
