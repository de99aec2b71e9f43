"""The order of the re-runs: the program as it is, one change at a time, larger batches, and the
largest batch that is predicted to fit, rehearsed. Where the time does not suffice, what was asked
for most often is there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import psutil

from auditor.extensions.plan import batch_size, changes
from auditor.extensions.plan.changes import Option
from auditor.extensions.plan.fitting import MemoryModel, Point, fits, rounded, usable_bytes
from auditor.extensions.plan.measured import Measured
from auditor.extensions.plan.reruns import ALLOCATOR, STEPS, WARMUP, Failed, Reruns, Wanted
from auditor.extensions.plan.result import Card, Checked, Largest, PlanResult, PlanRow, rehearsed
from auditor.model.gpus import GPUS, Gpu

TIMES = (2, 4)
"""Batch sizes of the first rows, in multiples of the program's own."""

AS_IT_IS = "as it is"
MULTIPLE = "batch x"

SAVES = 0.02
"""Share of the peak that a change must save for its largest batch to be looked for."""

NO_TIME = "the time of --budget does not suffice"

HOST_SHARE = 0.5
"""Of the host's free memory that a rehearsal on the shadow may take: its tensors hold values."""

LEAST_S, SHARE = 20.0, 0.5
"""A re-run that was begun in time is not cut off before; one may take this share of the time that is
left, so that others have some, too.
"""

UNEVEN = 0.05
"""By what share steps may differ in their peaks before it is said."""


@dataclass
class Planning:
    """Makes the table row by row, so that what is known can be told at any time. ``tell`` is told
    what runs next, and how many re-runs there may be in all; ``say`` is told, once the first re-run
    shows how long one takes, what will be left out.
    """

    reruns: Reruns
    gpus: tuple[Gpu, ...]
    budget_s: float
    tell: Callable[[str, int], None]
    world: int | None = None
    batch: str = ""
    say: Callable[[str], None] = lambda words: None
    rows: dict[str, PlanRow] = field(default_factory=dict)
    checked: list[Checked] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    batch_of: str = ""
    interrupted: bool = False

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._points: dict[str, list[Point]] = {}
        self._runs: list[tuple[int, Measured]] = []
        self._base: Measured | None = None
        self._expected = 10 + 4 * len(self.gpus)

    # -- the whole ---------------------------------------------------------------------------------

    def make(self) -> PlanResult:
        """All of it, or what was known by an interrupt. Raises :class:`AuditProblem` where the
        program as it is gives no answer.
        """
        try:
            self._make()
        except KeyboardInterrupt:
            if self._base is None:
                raise
            self.interrupted = True
        return self.result()

    def _make(self) -> None:
        self.tell(AS_IT_IS, self._expected)
        base = self.reruns.run(Wanted())
        self._base = base
        setting = batch_size.found(base, self.reruns.args, self.reruns.files, self.batch)
        self.batch_of = setting if isinstance(setting, str) else setting.said
        if not isinstance(setting, str):
            self.reruns.setting = setting
        self._add(rehearsed(AS_IT_IS, "", self._size, base))
        if self._size is not None:
            self._note_point(AS_IT_IS, self._size, base)
        self._runs.append((self._size or 1, base))
        if base.sized:
            self.notes.append(
                f"sizes depend on values at {', '.join(base.sized[:3])}: on the null device these "
                "are zeros; --device rehearse has them"
            )
        allocator = ",".join(os.environ.get(name, "") for name in ALLOCATOR)
        options = list(changes.options(base, allocator))
        applying = sum(not each.why for each in options)
        self._expected = self.reruns.n + applying + (2 + 2 * applying) * len(self.gpus)
        self._say_left_out(options, base)
        options = [each for each in options if self._tried(each)]
        if base.varies > UNEVEN and self.rows[changes.EPOCH].allocated is None:
            self.notes.append(
                f"the peaks of the {base.steps} steps differ by up to {base.varies:.0%}: steps with "
                "larger batches than these may need more"
            )
        self._multiples(base)
        for option in options:
            if option.name == changes.EPOCH:  # what must fit decides before what comes first
                self._largest_of(option)
        self._largest(AS_IT_IS, Wanted())
        self._shard(base)
        saving = [each for each in options if self._saves(each.name, base)]
        if self._size is not None:
            self._expected = self.reruns.n + len(saving) * (1 + 2 * len(self.gpus))
            for option in saving:
                self._largest_of(option)

    def _say_left_out(self, options: Sequence[Option], base: Measured) -> None:
        """What there will be no row of, and why: it does not apply, or the time does not suffice."""
        idle: dict[str, list[str]] = {}
        for each in options:
            if each.why:
                idle.setdefault(each.why, []).append(each.name)
        if idle:
            said = (f"{', '.join(names)} ({why})" for why, names in idle.items())
            self.say(f"left out: {'; '.join(said)}")
        work = [each.name for each in options if not each.why]
        if self._size is not None:
            work += [f"{MULTIPLE}{times}" for times in TIMES]
            work += [f"the largest batch on {gpu.key}" for gpu in self.gpus]
            work.append("the largest batch with each change")
        room = max(0, int(self.left_s / max(base.seconds, 1e-3)))
        if room < len(work):
            self.say(
                f"--budget {self.budget_s:.0f} has time for about {room} more re-runs of "
                f"{base.seconds:.0f} s; left out then: {', '.join(work[room:])}"
            )

    def _saves(self, name: str, base: Measured) -> bool:
        """Whether a change lowers the peak by enough to ask for its largest batch."""
        row = self.rows[name]
        sizes = (row.reserved, base.reserved), (row.allocated, base.allocated)
        return any(new is not None and new <= (1 - SAVES) * old for new, old in sizes)

    @property
    def _size(self) -> int | None:
        return self.reruns.setting.size if self.reruns.setting is not None else None

    def result(self) -> PlanResult:
        """What is known by now."""
        notes = [*self.notes, *self.reruns.warnings]
        return PlanResult(
            self.reruns.target,
            "null device" if self.reruns.device == "null" else "shadow",
            tuple(Card(gpu.key, gpu.memory_bytes, gpu.context_mib << 20) for gpu in self.gpus),
            self.batch_of,
            tuple(sorted(self.rows.values(), key=_place)),
            tuple(self.checked),
            self.world,
            self.reruns.n,
            time.monotonic() - self._began,
            tuple(notes),
            self.interrupted,
        )

    # -- rows --------------------------------------------------------------------------------------

    def _add(self, row: PlanRow) -> None:
        if row.allocated is None or row.reserved is None:
            self.rows[row.name] = row
            return
        by_memory = sorted(GPUS, key=usable_bytes)
        fitting = {gpu.key: fits(gpu, row.allocated, row.reserved) for gpu in GPUS}
        smallest = next((gpu.key for gpu in by_memory if fitting[gpu.key] == "yes"), "")
        asked = {gpu.key: fitting[gpu.key] for gpu in self.gpus}
        self.rows[row.name] = replace(row, fits=asked, smallest=smallest)

    def _multiples(self, base: Measured) -> None:
        setting = self.reruns.setting
        if setting is None:
            return
        for times in TIMES:
            name, batch = f"{MULTIPLE}{times}", setting.size * times
            change = f"{setting.said}: {batch}"
            why = self._refused(batch)
            found = Refused(why) if why else self._run(name, Wanted(batch=batch))
            if isinstance(found, Refused):
                self.rows[name] = PlanRow(name, change, why=found.why)
                return
            why = setting.obeyed(base, found, batch)
            if why:
                self.rows[name] = PlanRow(name, change, why=why)
                if times == TIMES[0]:  # larger ones would not be, either
                    self.batch_of, self.reruns.setting = why, None
                    self._points.pop(AS_IT_IS, None)
                return
            self._check(AS_IT_IS, batch, found)
            self._note_point(AS_IT_IS, batch, found)
            self._add(rehearsed(name, change, batch, found))

    def _tried(self, option: Option) -> bool:
        """Rehearse a change at the program's own batch size; whether it was."""
        if option.why:
            self.rows[option.name] = PlanRow(option.name, why=option.why)
            return False
        found = self._run(option.name, Wanted(option.change, allocator=option.allocator))
        if isinstance(found, Measured) and option.needed and option.needed not in found.changed:
            found = Refused("the re-run did not come to what was to be changed")
        if isinstance(found, Refused):
            self.rows[option.name] = PlanRow(option.name, option.text, why=found.why)
            return False
        if self._size is not None:
            self._note_point(option.name, self._size, found)
        self._add(rehearsed(option.name, option.text, self._size, found))
        return True

    def _shard(self, base: Measured) -> None:
        if self.world is None:
            return
        stages = changes.stages(base, self.world)
        if not stages:
            self.notes.append("no ZeRO row: what the peak is for is not known")
        share = base.reserved / base.allocated if base.allocated else 1.0
        for stage in stages:
            peak = stage.peak(base, self.world)
            name = f"{stage.name}, {self.world} ranks"
            row = PlanRow(name, stage.change, "estimated", self._size, peak, round(peak * share))
            self._add(row)

    # -- the largest batch -------------------------------------------------------------------------

    def _largest_of(self, option: Option) -> None:
        setting, base = self.reruns.setting, self._base
        if setting is None or base is None:
            return
        wanted = Wanted(option.change, allocator=option.allocator)
        batch = setting.size * TIMES[-1]
        found = self._run(f"{option.name}, batch {batch}", replace(wanted, batch=batch))
        if isinstance(found, Measured) and not setting.obeyed(base, found, batch):
            self._note_point(option.name, batch, found)
            self._largest(option.name, wanted)

    def _largest(self, name: str, wanted: Wanted) -> None:
        """For each GPU, the one with most memory first: its points bound the others."""
        for gpu in sorted(self.gpus, key=usable_bytes, reverse=True):
            found = self._largest_on(name, wanted, usable_bytes(gpu))
            if found is not None:
                row = self.rows[name]
                self.rows[name] = replace(row, largest={**row.largest, gpu.key: found})

    def _largest_on(self, name: str, wanted: Wanted, usable: int) -> Largest | None:
        points = self._points.get(name, [])
        if len(points) < 2:
            return None
        return largest_batch(points, usable, lambda batch: self._point(name, wanted, batch))

    def _point(self, name: str, wanted: Wanted, batch: int) -> Point | Refused:
        """One batch size, rehearsed."""
        why = self._refused(batch)
        if why:
            return Refused(why)
        found = self._run(f"{name}, batch {batch}", replace(wanted, batch=batch))
        if isinstance(found, Refused):
            return found
        setting, base = self.reruns.setting, self._base
        why = setting.obeyed(base, found, batch) if setting is not None and base is not None else ""
        if why:
            return Refused(why)
        self._check(name, batch, found)
        return self._note_point(name, batch, found)

    # -- re-runs -----------------------------------------------------------------------------------

    def _run(self, name: str, wanted: Wanted) -> Measured | Refused:
        """What it measured, or why there is nothing."""
        if self.left_s < self._takes(wanted.batch or self._size or 1):
            return Refused(NO_TIME)
        self.tell(name, max(self._expected, self.reruns.n + 1))
        self.reruns.deadline = time.monotonic() + max(LEAST_S, SHARE * self.left_s)
        try:
            found = self.reruns.run(wanted)
        except Failed as problem:
            return Refused(str(problem), failed=not problem.ours)
        self._runs.append((wanted.batch or self._size or 1, found))
        return found

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self.budget_s - (time.monotonic() - self._began)

    def _takes(self, batch: int) -> float:
        """Seconds that a re-run with this batch takes: the first run's, and the batch's excess."""
        base = self._runs[0][1]
        (low, small), (high, large) = (
            pick(self._runs, key=lambda each: each[0]) for pick in (min, max)
        )
        if batch <= high or low == high:
            return base.seconds
        slope = max(0.0, (large.step_s - small.step_s) / (high - low))
        return base.seconds + (WARMUP + STEPS + 1) * slope * (batch - low)

    def _refused(self, batch: int) -> str:
        """Why a batch size cannot be rehearsed; empty if it can be tried."""
        points = self._points.get(AS_IT_IS, [])
        if self.reruns.device != "null" and points:
            needed = MemoryModel(points).allocated(batch)
            if needed > HOST_SHARE * psutil.virtual_memory().available:
                return "the shadow computes real values, and the host's memory does not suffice"
        return ""

    def _note_point(self, name: str, batch: int, found: Measured) -> Point:
        point = Point(batch, found.phases, found.allocated, found.reserved)
        self._points.setdefault(name, []).append(point)
        return point

    def _check(self, name: str, batch: int, found: Measured) -> None:
        """Note by how much the model missed what was then rehearsed."""
        points = self._points.get(name, [])
        if len(points) > 1:
            model = MemoryModel(points)
            predicted = round(model.allocated(batch)), round(model.reserved(batch))
            self.checked.append(
                Checked(name, batch, predicted[0], found.allocated, predicted[1], found.reserved)
            )


def _place(row: PlanRow) -> int:
    """Of a row in the table: larger batches stand below the program as it is."""
    first = AS_IT_IS, changes.EPOCH
    return first.index(row.name) if row.name in first else 2 + (not row.name.startswith(MULTIPLE))


# -- largest ---------------------------------------------------------------------------------------
# The search for the largest batch that fits: predicted by the model, rehearsed, predicted anew.


TRIES = 6
"""Re-runs for one GPU at most. Memory that is linear in the batch takes one or two; of what is not
each re-run is nearer to the limit.
"""

NEAR = 1.05
"""A batch that is predicted to fit and larger by less than this is not worth another re-run."""

JUMP = 32
"""How many times the largest rehearsed batch is tried at most: memory may grow in another way from
some size on.
"""

MARGIN = 0.99
"""Share of the memory that is aimed at after a batch that was predicted to fit did not."""

TOLD = 8
"""The same of a batch that is told and was not rehearsed."""


@dataclass(frozen=True)
class Refused:
    """No peak is known of a batch. ``failed``: the program itself did not run with it."""

    why: str
    failed: bool = False


Rehearse = Callable[[int], Point | Refused]


def largest_batch(points: Sequence[Point], usable: int, rehearse: Rehearse) -> Largest:
    """The largest batch that reserves at most ``usable`` bytes; at least two ``points``."""
    known = list(points)
    if not MemoryModel(known).grows:
        return Largest(None, "estimated", why="the peak does not grow with the batch")
    for _ in range(TRIES):
        batch = _next(known, usable)
        if batch is None:
            break
        answer = rehearse(batch)
        if isinstance(answer, Refused):
            return _without(known, usable, answer)
        known.append(answer)
    return _known(known, usable)


def _next(known: list[Point], usable: int) -> int | None:
    """The batch to try next; None where that would tell no more."""
    model = MemoryModel(known)
    missed = len(known) > 2 and known[-1].reserved > usable
    batch = model.largest(round(MARGIN * usable) if missed else usable)
    last = model.points[-1].batch
    if batch is None:
        return None
    batch = min(batch, max(rounded(JUMP * last), last))
    best = _best(known, usable)
    if any(point.batch == batch for point in known):
        return None
    return None if best is not None and best.batch < batch < NEAR * best.batch else batch


def _best(known: list[Point], usable: int) -> Point | None:
    fitting = [point for point in known if point.reserved <= usable]
    return max(fitting, key=lambda point: point.batch, default=None)


def _known(known: list[Point], usable: int, why: str = "") -> Largest:
    best, batch = _best(known, usable), MemoryModel(known).largest(usable)
    if best is None:
        return Largest(batch, "estimated", why="" if batch is None else "it was not rehearsed")
    more = batch is not None and batch >= NEAR * best.batch
    return Largest(best.batch, "rehearsed", best.reserved, why, more)


def _without(known: list[Point], usable: int, refused: Refused) -> Largest:
    """What is told of a batch that was not rehearsed: not much more than what was."""
    model = MemoryModel(known)
    batch = model.largest(usable)
    if batch is None or (refused.failed and _best(known, usable) is not None):
        return _known(known, usable, refused.why)
    told = min(batch, max(rounded(TOLD * model.points[-1].batch), 1))
    return Largest(told, "estimated", round(model.reserved(told)), refused.why, told < batch)
