"""What the data loaders gave the step, how long it waited for them, and where they were."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from auditor.batch_means import Estimate, mean_of
from auditor.evidence.recorded.machine import Device, device_of
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Step, Steps, queued_share
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema.data import BatchRow, LoaderRow, LoadingRow
from auditor.recordings.schema.sync import CopyRow
from auditor.rule import NotLooked

Cause = Literal["default device", "collate function", "dataset"]

CROWDED = 0.1
"""Share of time that the step's thread waited for a processor from which workers did, too."""


@dataclass(frozen=True)
class Loader:
    """One DataLoader. ``made_at`` is its constructor's call, None if it was made before the
    recorder looked.

    ``collate_at`` and ``dataset_at`` are the user's source where it is recorded: the line that
    moves tensors to a device if there is one, else the definition. ``length`` is None for an
    iterable dataset. ``pins``: it was given ``pin_memory=True``.
    """

    number: int
    consumed_at: Site | None = None
    made_at: Site | None = None
    workers: int = 0
    length: int | None = None
    dataset: str = ""
    dataset_at: Site | None = None
    collate: str = ""
    collate_at: Site | None = None
    pins: bool = False
    iter_at: Site | None = None
    persistent: bool | None = None
    samples: int | None = None
    sorted_classes: int | None = None
    """Classes that come one after the other in each epoch; None if they do not."""
    open_file: bool = False  # kept by its dataset
    draws: bool = False  # from a generator that its dataset keeps
    batches_at: Site | None = None
    """The user's own ``__iter__`` that cuts its batches."""


@dataclass(frozen=True)
class Starts:
    """How often the iterators of one loader began in the quiet steps, how many ``batches`` these
    took, and how much of the ``wait_us`` went to beginning: making it, its first batch, ending its
    workers.
    """

    made: int = 0
    batches: int = 0
    us: float = 0.0
    wait_us: float = 0.0
    each_us: tuple[float, ...] = ()
    """The time for each step in which an iterator began."""

    @property
    def share(self) -> float:
        """Share of the waiting."""
        return self.us / self.wait_us if self.wait_us else 0.0

    @property
    def batches_each(self) -> float:
        """Batches taken from an iterator, on average; all of them where none began."""
        return self.batches / max(1, self.made)


@dataclass(frozen=True)
class Waiting:
    """How long the quiet steps waited for input; ``loader`` is the one they waited for most. What
    workers waited for a processor is in no time. ``crowded``: it is not known, and the step's own
    thread waited for one. ``at_most`` is the same where all of that counts as waiting.
    """

    loader: Loader
    waits_us: tuple[float, ...]
    steps_us: tuple[float, ...]
    crowded: bool = False
    at_most: Waiting | None = None

    @property
    def mean_us(self) -> float:
        """Mean wait of a step."""
        return sum(self.waits_us) / len(self.waits_us)

    @property
    def price(self) -> Estimate | None:
        """The mean wait with its interval; None of too few steps."""
        return mean_of(self.waits_us)

    @property
    def share(self) -> float:
        """Share of the pass's time that was spent waiting."""
        return sum(self.waits_us) / (sum(self.steps_us) or 1.0)

    @property
    def recurring_share(self) -> float:
        """The share of the pass without the step that waited longest: the part that recurs."""
        if len(self.waits_us) < 2:
            return self.share
        longest = max(range(len(self.waits_us)), key=lambda number: self.waits_us[number])
        return (sum(self.waits_us) - self.waits_us[longest]) / (
            (sum(self.steps_us) - self.steps_us[longest]) or 1.0
        )

    def steps_above(self, share: float) -> int:
        """Steps that waited for at least this share of their time."""
        return sum(
            wait >= share * us for wait, us in zip(self.waits_us, self.steps_us, strict=True)
        )


@dataclass(frozen=True)
class Resident:
    """A loader whose batches come on the device, and why."""

    loader: Loader
    pattern: StepPattern
    cause: Cause
    devices: tuple[str, ...]
    default_set_at: Site | None = None
    copied_at: Site | None = None
    """The line that copied to the device while it made batches."""

    @property
    def site(self) -> Site | None:
        """The line to change, as near as it is known."""
        nearest = {
            "dataset": self.copied_at or self.loader.dataset_at,
            "collate function": self.copied_at or self.loader.collate_at,
            "default device": self.default_set_at,
        }
        return (
            nearest[self.cause]
            or self.loader.collate_at
            or self.loader.made_at
            or self.loader.consumed_at
        )

    @property
    def blame(self) -> str:
        """The cause in words."""
        if self.cause == "default device":
            return "torch.set_default_device"
        return f"the {self.cause} {self.loader.dataset if self.cause == 'dataset' else self.loader.collate}".strip()

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        return (
            ("cause", self.blame),
            ("devices", ", ".join(self.devices)),
            ("num_workers", str(self.loader.workers)),
        )


@dataclass(frozen=True)
class InWorker:
    """Worker processes of a loader would ask for CUDA, at ``site``."""

    loader: Loader
    site: Site | None


@dataclass(frozen=True)
class Batches(Table):
    """Loaders, and their batches in the quiet pass (waits) and the loud pass (devices)."""

    parts: ClassVar[tuple[str, ...]] = ("batches", "loaders", "steps")

    device: Device = "cpu"
    loaders: tuple[Loader, ...] = ()
    quiet_steps: tuple[Step, ...] = ()
    loud_steps: int = 0
    quiet: tuple[BatchRow, ...] = ()
    loud: tuple[BatchRow, ...] = ()
    default_set_at: Site | None = None
    in_worker: InWorker | None = None
    copied_at: Site | None = None
    """The line that copied most to the device inside a loader; none of a library's."""

    @classmethod
    def build(cls, evidence: Evidence) -> Batches:
        """From the quiet and loud passes."""
        rows, source, steps = rows_of(evidence, BatchRow), evidence.get(Source), evidence.get(Steps)
        loaders = tuple(_loader(evidence, source, row) for row in rows_of(evidence, LoaderRow))
        quiet, loud = (
            tuple(row for row in rows if row.pass_name == name) for name in ("quiet", "loud")
        )
        default = source.first_call("set_default_device")
        return cls(
            device_of(evidence),
            loaders,
            steps.quiet,
            len(steps.loud),
            quiet,
            loud,
            default,
            _in_worker(evidence, source, loaders),
            _copied_at(evidence, loaders),
        )

    def need_a_loader(self) -> None:
        """Raises :class:`NotLooked` if no DataLoader gave a batch."""
        if not self.quiet and not self.loud:
            raise NotLooked("no torch DataLoader gave a batch inside the audited steps")

    def usual(self, share: float) -> tuple[Loader, list[BatchRow]] | None:
        """The loader that gave a batch to this share of the diagnosed steps, with these; None if
        there is none, or where it is not known which of several trains.
        """
        found = [
            (loader, taken)
            for loader in self.loaders
            if (taken := [each for each in self.loud if each.loader == loader.number])
            and len(taken) >= share * self.loud_steps
        ]
        return found[0] if len(found) == 1 else None

    def need_times(self) -> None:
        """Raises :class:`NotLooked` if no step was timed: a rehearsal has no times."""
        if not self.quiet_steps:
            raise NotLooked("no step was timed")

    def waiting(self) -> Waiting | None:
        """How the quiet steps waited; None if there were none."""
        totals: defaultdict[int, float] = defaultdict(float)
        waits = {step.number: 0.0 for step in self.quiet_steps}
        queued = dict(waits)
        for batch, for_workers_us in self._for_their_workers():
            if batch.step in waits:
                own_us = batch.wait_us - for_workers_us
                waits[batch.step] += own_us
                queued[batch.step] += for_workers_us
                totals[batch.loader] += own_us
        slowest = max(totals, key=lambda number: totals[number], default=None)
        loader = next((loader for loader in self.loaders if loader.number == slowest), None)
        if loader is None:
            return None
        mine = [batch for batch in self.quiet if batch.loader == slowest]
        told = sum(batch.queued_us is not None for batch in mine)
        unknown = loader.workers > 0 and 2 * told < len(mine)
        whole = tuple(waits[number] + queued[number] for number in waits)
        steps_us = tuple(max(waits[step.number], step.own_us) for step in self.quiet_steps)
        return Waiting(
            loader,
            tuple(waits.values()),
            tuple(
                max(waits[step.number], step.own_us - queued[step.number])
                for step in self.quiet_steps
            ),
            crowded=unknown and queued_share(self.quiet_steps) >= CROWDED,
            at_most=Waiting(loader, whole, steps_us),
        )

    def _for_their_workers(self) -> Iterator[tuple[BatchRow, float]]:
        """The quiet batches, and how much of each wait its loader's workers may have waited for a
        processor: a wait of theirs that one step did not notice may hold up a later one, which
        takes what was loaded ahead.
        """
        left: defaultdict[int, float] = defaultdict(float)
        for batch in self.quiet:
            us = left[batch.loader] + (batch.queued_us or 0.0)
            taken = min(us, batch.wait_us)
            left[batch.loader] = us - taken
            yield batch, taken

    def starts(self, loader: int) -> Starts:
        """How its iterators began."""
        mine = [batch for batch in self.quiet if batch.loader == loader]
        return Starts(
            sum(batch.made for batch in mine),
            sum(batch.n for batch in mine),
            sum(batch.start_us for batch in mine),
            sum(batch.wait_us for batch in mine),
            tuple(batch.start_us for batch in mine if batch.made),
        )

    def resident(self) -> Iterator[Resident]:
        """Loaders that gave batches on the device."""
        resident = [batch for batch in self.loud if _on_a_gpu(batch.devices)]
        # which of several made a copy is not recorded
        copied_at = self.copied_at if len({each.loader for each in resident}) == 1 else None
        for loader in self.loaders:
            mine = [batch for batch in resident if batch.loader == loader.number]
            if mine:
                devices = tuple(sorted(set[str]().union(*(batch.devices or () for batch in mine))))
                on = step_pattern({batch.step for batch in mine}, self.loud_steps)
                yield Resident(loader, on, _cause(mine), devices, self.default_set_at, copied_at)


def _in_worker(evidence: Evidence, source: Source, loaders: tuple[Loader, ...]) -> InWorker | None:
    """From the frames of the worker that ended a rehearsal; None if it may be several loaders."""
    frames = evidence.recording.manifest.get("cuda_in_worker")
    with_workers = [loader for loader in loaders if loader.workers]
    if not isinstance(frames, list) or not with_workers:
        return None
    own = [
        (evidence.recording.relative(each["file"]), each["line"])
        for each in frames
        if isinstance(each, dict) and isinstance(each.get("line"), int)
        if evidence.recording.relative(str(each.get("file"))) in source.texts
    ]
    loader = with_workers[0]
    if len({each.dataset_at or each.made_at for each in with_workers}) > 1 and not own:
        return None
    moved = next((each for each in reversed(own) if source.moves_at(*each)), None)
    if moved is not None:
        return InWorker(loader, evidence.recording.site_at(*moved))
    return InWorker(loader, loader.dataset_at or loader.made_at or loader.consumed_at)


def _copied_at(evidence: Evidence, loaders: tuple[Loader, ...]) -> Site | None:
    copied: Counter[int] = Counter()
    for row in rows_of(evidence, CopyRow) if evidence.has("copies") else ():
        if row.pass_name == "loud" and row.lib == "loader":
            copied[row.at] += row.bytes
    found = [evidence.recording.site(at) for at, _ in copied.most_common(1)]
    # the loop itself: what copies is code of a library
    return next((each for each in found if all(each != by.consumed_at for by in loaders)), None)


def _on_a_gpu(devices: Iterable[str] | None) -> bool:
    return any(device.startswith("cuda") for device in devices or ())


def _cause(batches: list[BatchRow]) -> Cause:
    """Who put the batch on the device: its samples, the default device, or the collate function."""
    if all(_on_a_gpu([batch.default_device or ""]) for batch in batches):
        return "default device"
    there = sum(_on_a_gpu(batch.sample_devices) for batch in batches)
    return "dataset" if 2 * there >= len(batches) else "collate function"


def _loader(evidence: Evidence, source: Source, row: LoaderRow) -> Loader:
    return Loader(
        number=row.loader,
        consumed_at=_site(evidence, row.at),
        made_at=_site(evidence, row.made_at),
        workers=row.workers,
        length=row.length,
        dataset=row.dataset,
        dataset_at=_definition(evidence, source, row.dataset_file, row.dataset_line),
        collate=row.collate,
        pins=row.pin_memory,
        collate_at=_definition(evidence, source, row.collate_file, row.collate_line),
        iter_at=_site(evidence, row.iter_at),
        persistent=row.persistent,
        samples=row.samples,
        sorted_classes=row.sorted_classes,
        open_file=row.open_file,
        draws=row.draws,
        batches_at=_definition(evidence, source, row.batches_file, row.batches_line),
    )


def _site(evidence: Evidence, number: int | None) -> Site | None:
    return None if number is None else evidence.recording.site(number)


def _definition(
    evidence: Evidence, source: Source, file: str | None, line: int | None
) -> Site | None:
    """The user's own definition: the line that moves tensors, else its first; None of a library."""
    if not file or not line or evidence.recording.relative(file) not in source.texts:
        return None
    return evidence.recording.site_at(
        file, source.move_in_function(evidence.recording.relative(file), line) or line
    )


# -- loading ---------------------------------------------------------------------------------------
# Which lines of the user's a loader takes its time in, from stacks that were seen inside it.


Phase = Literal["dataset", "collate", "sampler", "other"]

LEAST_LOOKS = 12
"""Looks at a loader from which a share is said: of 12, one more or less is 8 %."""

LEAST_LATE, LEAST_LATE_US = 5, 50_000.0
"""Least looks at C code that kept the interpreter to itself, and least us that they stand for. A
look that comes when such code returns stands for all of its time.
"""


@dataclass(frozen=True)
class Seen:
    """A stack inside the loading: the user's lines, outermost first; time in us, and looks."""

    at: tuple[Site, ...]
    phase: str
    us: float
    looks: int
    where: str = "step"


@dataclass(frozen=True)
class Costliest:
    """The line that the loading takes most of its time in, and its share. ``function``: the share is
    that of all of its lines, of which the site is the costliest.
    """

    site: Site
    share: float
    phase: str
    function: str = ""


@dataclass(frozen=True)
class Loading(Table):
    """Stacks of the loud pass, by the number of the loader. Old recordings have none."""

    seen: Mapping[int, tuple[Seen, ...]] = field(default_factory=dict)

    @classmethod
    def build(cls, evidence: Evidence) -> Loading:
        """From the loud pass."""
        by_loader: defaultdict[int, list[Seen]] = defaultdict(list)
        for row in evidence.rows(LoadingRow):
            sites = tuple(evidence.recording.site(number) for number in row.stack)
            by_loader[row.loader].append(Seen(sites, row.phase, row.us, row.n, row.where))
        return cls({loader: tuple(each) for loader, each in by_loader.items()})

    def phase_share(self, loader: int, phase: Phase) -> float:
        """Share of the loading that one phase takes; 0 of too few looks."""
        counted = self._loading(loader)
        return _us(each for each in counted if each.phase == phase) / (_us(counted) or 1.0)

    def costliest(self, loader: int, share: float) -> Costliest | None:
        """The costliest line of the innermost function with at least this share of the loading
        time; None if it is spread, or too little was seen.
        """
        inside, found = self._loading(loader), None
        total = _us(inside)
        for depth in range(max((len(each.at) for each in inside), default=0)):
            functions: defaultdict[tuple[str, str], list[Seen]] = defaultdict(list)
            for each in inside:
                if len(each.at) > depth:
                    functions[each.at[depth].file, each.at[depth].function].append(each)
            inside = max(functions.values(), key=_us, default=[])
            if not inside or _us(inside) < share * total:
                break
            lines: defaultdict[Site, list[Seen]] = defaultdict(list)
            for each in inside:
                lines[each.at[depth]].append(each)
            site, here = max(lines.items(), key=lambda line: _us(line[1]))
            alone = _us(here) >= share * total
            part = (_us(here) if alone else _us(inside)) / total
            phase = max(here, key=lambda each: each.us).phase
            found = Costliest(site, part, phase, "" if alone else site.function)
        return found

    def _loading(self, loader: int) -> Sequence[Seen]:
        """What counts as the loading: workers where there are any, unless the step's own thread is
        busy drawing indices for them. Empty of too few looks.
        """
        mine = self.seen.get(loader, ())
        step = [each for each in mine if each.where == "step"]
        drawing_us = _us(each for each in step if each.phase == "sampler")
        drawing = drawing_us > 0 and drawing_us >= 0.5 * _us(step)
        workers = [each for each in mine if each.where == "worker"]
        counted = step if drawing or not workers else workers
        looks = sum(each.looks for each in counted)
        late = looks >= LEAST_LATE and _us(counted) >= LEAST_LATE_US
        return counted if looks >= LEAST_LOOKS or late else ()


def _us(seen: Iterable[Seen]) -> float:
    return sum(each.us for each in seen)
