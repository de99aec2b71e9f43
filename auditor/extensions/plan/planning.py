"""The order of the re-runs: the program as it is, one change at a time, larger batches, and the
largest batch that is predicted to fit, rehearsed. Where the time does not suffice, what was asked
for most often is there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import psutil

from auditor.extensions.plan import batch_size, changes
from auditor.extensions.plan.changes import Option
from auditor.extensions.plan.fitting import Fits, MemoryModel, Point, fits, rounded, usable_bytes
from auditor.extensions.plan.measured import Measured
from auditor.extensions.plan.reruns import ALLOCATOR, Failed, Rerun, Reruns
from auditor.model.gpus import GPUS, Gpu

# -- what comes out: one row for each thing that can be changed, and what fits where ---------------

SCHEMA = "audit-plan/1"

Basis = Literal["rehearsed", "estimated"]
"""``rehearsed``: a re-run of the program had this peak. ``estimated``: computed from others."""


@dataclass(frozen=True)
class Largest:
    """The largest batch that fits a GPU, or None. ``why`` it is not rehearsed; ``more`` may fit."""

    batch: int | None
    basis: Basis
    reserved: int | None = None
    why: str = ""
    more: bool = False


@dataclass(frozen=True)
class PlanRow:
    """One way to run the program. Sizes in bytes; ``why`` says why there is no peak."""

    name: str
    change: str = ""
    """The line to write, or the patch in words; empty for the program as it is."""
    basis: Basis = "rehearsed"
    batch: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    purposes: tuple[tuple[str, int], ...] = ()
    holder: str = ""
    holder_bytes: int = 0
    fits: Mapping[str, Fits] = field(default_factory=dict)
    smallest: str = ""
    """The GPU with least memory on which it fits; empty if it fits on none."""
    largest: Mapping[str, Largest] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class Card:
    """A GPU that was asked for; ``usable`` bytes are left to torch's allocator."""

    name: str
    memory: int
    context: int

    @property
    def usable(self) -> int:
        """Without what a process takes beside the allocator."""
        return self.memory - self.context


@dataclass(frozen=True)
class PlanResult:
    """The table and what it rests on."""

    target: str
    device: str
    """``shadow`` or ``null device``."""
    cards: tuple[Card, ...]
    batch_of: str
    """What sets the batch size, or why that is unknown."""
    rows: tuple[PlanRow, ...]
    world: int | None = None
    runs: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        data = asdict(self)
        cards = [{**asdict(each), "usable": each.usable} for each in self.cards]
        rows = [{**row, "purposes": dict(row["purposes"])} for row in data["rows"]]
        return {"schema": SCHEMA, **data, "cards": cards, "rows": rows}


def rehearsed(name: str, change: str, batch: int | None, found: Measured) -> PlanRow:
    """A row that a re-run measured."""
    return PlanRow(
        name,
        change,
        "rehearsed",
        batch,
        found.allocated,
        found.reserved,
        found.purposes,
        found.holder,
        found.holder_bytes,
    )


# -- the re-runs -----------------------------------------------------------------------------------

TIMES = (2, 4)
"""Batch sizes of the first rows, in multiples of the program's own."""

AS_IT_IS = "as it is"
MULTIPLE = "batch x"

SAVES = 0.02
"""Share of the peak that a change must save for its largest batch to be looked for."""

NO_TIME = "--budget is too short for it"

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
    """Fills the table row by row, printable at any time; ``now`` is the row under way."""

    reruns: Reruns
    gpus: tuple[Gpu, ...]
    budget_s: float
    world: int | None = None
    batch: str = ""
    now: str = AS_IT_IS
    rows: dict[str, PlanRow] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    batch_of: str = ""
    interrupted: bool = False

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._points: dict[str, list[Point]] = {}
        self._longest_s = 0.0
        self._base: Measured | None = None

    # -- the whole ---------------------------------------------------------------------------------

    def make(self) -> PlanResult:
        """All of it, or what was known by an interrupt. Raises :class:`AuditProblem` if the
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
        self._base = base = self.reruns.run(Rerun())
        self._longest_s = base.seconds
        setting = batch_size.found(base, self.reruns.args, self.reruns.files, self.batch)
        self.batch_of = setting if isinstance(setting, str) else setting.said
        if not isinstance(setting, str):
            self.reruns.setting = setting
        self._add(rehearsed(AS_IT_IS, "", self._size, base))
        if self._size is not None:
            self._note_point(AS_IT_IS, self._size, base)
        if base.sized:
            self.notes.append(
                f"sizes depend on values at {', '.join(base.sized[:3])}: on the null device these "
                "are zeros; --device rehearse has them"
            )
        allocator = ",".join(os.environ.get(name, "") for name in ALLOCATOR)
        options = [each for each in changes.options(base, allocator) if self._tried(each)]
        if base.varies > UNEVEN and self.rows[changes.EPOCH].allocated is None:
            self.notes.append(
                f"the peaks of the {base.steps} steps differ by up to {base.varies:.0%}: steps with "
                "larger batches than these may need more"
            )
        self._multiples(base)
        for option in options:
            if option.name == changes.EPOCH:  # what must fit decides before what comes first
                self._largest_of(option)
        self._largest(AS_IT_IS, Rerun())
        self._shard(base)
        for option in options:
            row = self.rows[option.name]
            sizes = (row.reserved, base.reserved), (row.allocated, base.allocated)
            if any(new is not None and new <= (1 - SAVES) * old for new, old in sizes):
                self._largest_of(option)

    @property
    def _size(self) -> int | None:
        return self.reruns.setting.size if self.reruns.setting is not None else None

    def result(self) -> PlanResult:
        """What is known by now."""
        first = AS_IT_IS, changes.EPOCH

        def place(row: PlanRow) -> int:
            """Larger batches stand below the program as it is."""
            if row.name in first:
                return first.index(row.name)
            return 2 + (not row.name.startswith(MULTIPLE))

        return PlanResult(
            self.reruns.target,
            "null device" if self.reruns.device == "null" else "shadow",
            tuple(Card(gpu.key, gpu.memory_bytes, gpu.context_mib << 20) for gpu in self.gpus),
            self.batch_of,
            tuple(sorted(self.rows.values(), key=place)),
            self.world,
            self.reruns.n,
            time.monotonic() - self._began,
            (*self.notes, *self.reruns.warnings),
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
            found = Refused(why) if why else self._run(name, Rerun(batch=batch))
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
            self._note_point(AS_IT_IS, batch, found)
            self._add(rehearsed(name, change, batch, found))

    def _tried(self, option: Option) -> bool:
        """Rehearse a change at the program's own batch size; whether it was."""
        if option.why:
            self.rows[option.name] = PlanRow(option.name, why=option.why)
            return False
        found = self._run(option.name, Rerun(option.change, allocator=option.allocator))
        if isinstance(found, Measured) and option.needed and option.needed not in found.changed:
            found = Refused("the re-run did not reach the code to change")
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
        stages = list(changes.stages(base, self.world))
        if not stages:
            self.notes.append("no ZeRO row: what the peak is for is not known")
        share = base.reserved / base.allocated if base.allocated else 1.0
        for stage in stages:
            name, reserved = f"{stage.name}, {self.world} ranks", round(stage.peak * share)
            row = PlanRow(name, stage.change, "estimated", self._size, stage.peak, reserved)
            self._add(row)

    # -- the largest batch -------------------------------------------------------------------------

    def _largest_of(self, option: Option) -> None:
        setting, base = self.reruns.setting, self._base
        if setting is None or base is None:
            return
        wanted = Rerun(option.change, allocator=option.allocator)
        batch = setting.size * TIMES[-1]
        found = self._run(f"{option.name}, batch {batch}", replace(wanted, batch=batch))
        if isinstance(found, Measured) and not setting.obeyed(base, found, batch):
            self._note_point(option.name, batch, found)
            self._largest(option.name, wanted)

    def _largest(self, name: str, wanted: Rerun) -> None:
        """For each GPU, the one with most memory first: its points bound the others."""
        for gpu in sorted(self.gpus, key=usable_bytes, reverse=True):
            points = self._points.get(name, [])
            if len(points) < 2:
                return
            found = largest_batch(
                points, usable_bytes(gpu), lambda batch: self._point(name, wanted, batch)
            )
            row = self.rows[name]
            self.rows[name] = replace(row, largest={**row.largest, gpu.key: found})

    def _point(self, name: str, wanted: Rerun, batch: int) -> Point | Refused:
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
        return self._note_point(name, batch, found)

    # -- re-runs -----------------------------------------------------------------------------------

    def _run(self, name: str, wanted: Rerun) -> Measured | Refused:
        """What it measured, or why there is nothing."""
        left_s = self.budget_s - (time.monotonic() - self._began)
        if left_s < self._longest_s:
            return Refused(NO_TIME)
        self.now = name
        self.reruns.deadline = time.monotonic() + max(LEAST_S, SHARE * left_s)
        try:
            found = self.reruns.run(wanted)
        except Failed as problem:
            return Refused(str(problem), failed=not problem.ours)
        self._longest_s = max(self._longest_s, found.seconds)
        return found

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


# -- largest ---------------------------------------------------------------------------------------
# The search for the largest batch that fits: predicted by the model, rehearsed, predicted again.


TRIES = 6
"""Re-runs for one GPU at most: linear memory takes one or two; else each comes nearer."""

NEAR = 1.05
"""A batch that is predicted to fit and larger by less than this is not worth another re-run."""

JUMP = 32
"""How many times the largest rehearsed batch is tried at most: growth may change from there."""

MARGIN = 0.99
"""Share of the memory that is aimed at after a batch that was predicted to fit did not."""

TOLD = 8
"""How many times the largest rehearsed batch one may be that is reported without a rehearsal."""


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
    """The batch to try next; None if that would tell no more."""
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
    """The batch that is reported without a rehearsal: not much more than a rehearsed one."""
    model = MemoryModel(known)
    batch = model.largest(usable)
    if batch is None or (refused.failed and _best(known, usable) is not None):
        return _known(known, usable, refused.why)
    told = min(batch, max(rounded(TOLD * model.points[-1].batch), 1))
    return Largest(told, "estimated", round(model.reserved(told)), refused.why, told < batch)
