"""DATA003, 4 and 8 to 13: how batches reach the device, and what a data set does for each sample."""

import ast
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.batches import Batches, InWorker
from auditor.evidence.recorded.copies import Copies, Copy, CopyLine
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, name_of
from auditor.evidence.table import Rows
from auditor.evidence.trace.facts import TraceSteps
from auditor.model import Finding, Remedy, Severity, Site
from auditor.recordings.schema.data import DrawsRow, ListedRow, RereadRow
from auditor.rule import Rule, knob
from auditor.syntax.index import called_in, nodes_in, targets_of

from ..copying import CopyRule, TransferRule
from ..torch_says import TorchSays


class ArrayNotWritable(TorchSays):
    """A tensor shares memory that must not be written."""

    code = "DATA013"
    severity = Severity.NOTE
    warning = "array not writable"
    defect = (
        "a tensor shares the memory of a read-only array: an in-place operation would write to it"
    )
    advice = "Copy it first: torch.from_numpy(array.copy())."


UNPINNED = Remedy(
    "torch pins tensors, and those in lists, tuples and dicts: give a class of your own a method "
    "pin_memory(self) that pins its tensors and returns self, or collate into a named tuple or a dict. "
    "A tensor computed from a batch on the host is not pinned either: move the batch first."
)
PINNED = "page-locking the batch changes where it lies, not what it holds"


@dataclass(frozen=True)
class LoaderWithoutPinnedMemory(CopyRule):
    """Batches are copied to the device from unpinned memory."""

    code = "DATA003"
    severity = Severity.WARNING
    since = "0.1"

    small: int = knob(64_000, "Report a note for up to this many bytes: the driver stages them.")

    def detect(self, copies: Copies, source: Source, configs: Configs) -> Iterator[Finding]:
        lines: dict[int, list[CopyLine]] = {}
        for place in self.usual(copies.sites("batch", pinned=False)):
            for number in dict.fromkeys(map(_number, place.copies)):
                lines.setdefault(number, []).append(place)
        for number, places in lines.items():
            moved = (copy for place in places for copy in place.copies if _number(copy) == number)
            place = CopyLine.of(moved, copies.steps)
            loader = copies.loaders.get(number)
            made_at = loader.made_at if loader is not None else None
            if made_at is not None and not source.called(made_at, "DataLoader"):
                made_at = None  # made by a library, or by a subclass of the user's
            if made_at is None and place.library:
                continue
            if loader is not None and loader.pins:
                yield self.report(
                    place,
                    f"the loader pins its batches (pin_memory=True), but {place.amount} are "
                    f"copied{_lines(places)} from unpinned memory",
                    site=made_at,
                    remedy=UNPINNED,
                )
                continue
            pinned = given(source, configs, made_at, "DataLoader", "pin_memory", ran=False)
            decided = f": {pinned.said}" if pinned.written else ""
            yield self.report(
                place,
                f"{place.amount} of batches are copied to the "
                f"device{'' if made_at is None else _lines(places)} on {place.pattern} "
                f"from unpinned memory{decided}",
                site=made_at,
                severity=Severity.NOTE
                if all(each.bytes_per_step <= self.small * each.per_step for each in places)
                else None,
                remedy=self._remedy(places, made_at, pinned, source, configs),
            )

    def _remedy(
        self,
        places: Sequence[CopyLine],
        made_at: Site | None,
        pinned: CallArgument,
        source: Source,
        configs: Configs,
    ) -> Remedy:
        """All copies of the loader's batches stop to wait, or none is touched."""
        text = (
            "Pass pin_memory=True to the loader, and move its batches with .to(device, "
            "non_blocking=True)."
        )
        if places[0].library:
            text = f"Pass pin_memory=True to the loader; {places[0].library} moves its batches."
        if made_at is None:
            return Remedy(text)
        own = [each for each in places if not each.library]
        moves = {str(each.site): self.waiting_moves(each, source, configs) for each in own}
        waits = (
            str(each.site)
            for each in own
            if each.waits_elsewhere or any(move.refused for move in moves[str(each.site)])
        )
        if still := next(waits, ""):  # a line whose copy waits all the same, and cannot be edited
            text += f" Pinned memory alone gains little: the copy at {still} still waits."
            return Remedy(text + pinned.advice, refused=pinned.refused)
        edits = pinned.edits("True", safe=True, reason=PINNED)
        if edits:
            each_move = (move for each in moves.values() for move in each)
            unwaited = self.without_waiting(each_move, own)
            edits = tuple(dict.fromkeys((*edits, *unwaited)))
        return Remedy(text + pinned.advice, edits, refused=pinned.refused)


def _number(copy: Copy) -> int:
    return -1 if copy.row.loader is None else copy.row.loader


def _lines(places: Sequence[CopyLine]) -> str:
    more = len(places) - 1
    return f" at {places[0].site}" + (f" and {more} more line{'s' * (more > 1)}" if more else "")


# -- batches ---------------------------------------------------------------------------------------
# DATA004, 8 and 9: how batches reach the device.


class PinnedBatchCopiedBlocking(CopyRule):
    """Pinned batches are copied to the device while the host waits."""

    code = "DATA004"
    severity = Severity.NOTE
    since = "0.1"
    leads = 1

    def detect(self, copies: Copies, source: Source, configs: Configs) -> Iterator[Finding]:
        for place in self.own(copies.sites("batch", blocking=True, pinned=True)):
            moves = self.waiting_moves(place, source, configs)
            decided = self.waits_because(moves)
            how = f"with {decided}" if decided else "without non_blocking=True"
            message = f"{place.amount} of pinned batches are copied to the device on {place.pattern} {how}"
            yield self.report(place, message, remedy=self._remedy(moves, place))

    def _remedy(self, moves: tuple[CallArgument, ...], place: CopyLine) -> Remedy:
        text = "Move the batch with non_blocking=True, so that the host goes on during the copy."
        edits = tuple(self.without_waiting(moves, (place,)))
        advice, refused = self.decided_elsewhere(moves)
        return Remedy(text + advice, edits, refused=None if edits else refused)


class StepBoundByCopiesToDevice(TransferRule):
    """The device waits for copies from the host."""

    code = "DATA008"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Send less (uint8 or half precision, converted on the device), from pinned memory with "
        "non_blocking=True, and copy the next batch on a side stream while this one computes; or "
        "keep the data on the device."
    )

    def detect(self, steps: TraceSteps) -> Iterator[Finding]:
        yield from self.bound(steps, "to_device", "from the host")


REMEDIES = {
    "collate function": "Let the collate function build host tensors",
    "dataset": "Let the dataset return host tensors",
    "default device": "Do not set the default device to CUDA around data "
    "loading, or build the batch with device='cpu'",
}


@dataclass(frozen=True)
class LoaderYieldsDeviceTensors(Rule):
    """A data loader yields tensors that are already on the device."""

    code = "DATA009"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    share: float = knob(0.5, "Report if at least this share of the steps gets batches on a device.")

    def detect(self, batches: Batches, machine: Machine) -> Iterator[Finding]:
        if batches.in_worker is not None:
            yield _in_worker(batches.in_worker)
            return
        machine.nothing_seen_without_cuda("no batch can be on a device")
        batches.need_a_loader()
        for resident in batches.resident():
            if not resident.pattern.usual(self.share):
                continue
            yield Finding(
                resident.site,
                f"the loader yields tensors on {', '.join(resident.devices)} on {resident.pattern}, "
                f"put there by {resident.blame}",
                steps=len(resident.pattern.seen),
                per_step=1.0,
                facts=resident.facts,
                remedy=_remedy(resident.cause),
            )


def _remedy(cause: str) -> Remedy:
    """``cause`` is why the batch lies on the device."""
    first = REMEDIES.get(cause, "Let the loader yield host tensors")
    return Remedy(
        f"{first}, set pin_memory=True, and move the batch in the step with .to(device, "
        "non_blocking=True)."
    )


def _in_worker(found: InWorker) -> Finding:
    many = found.loader.workers
    return Finding(
        found.site,
        f"on a GPU this ends the run: {many} worker process{'es' * (many > 1)} of the loader would "
        "use CUDA, which cannot be initialized in a forked process (the rehearsal ended that way)",
        steps=1,
        per_step=1.0,
        seen_on="rehearsal",
        severity=Severity.ERROR,
        remedy=_remedy("dataset"),
    )


def time_inside(row: ListedRow | RereadRow, batches: int, steps: Steps) -> tuple[float, float]:
    """Us in a step and the share of the step's own time; of what a worker called us in each of its
    ``batches`` and the share of its time for them. Of no step and no batch it is nothing.
    """
    if row.where == "worker":
        return row.us / max(1, batches), row.us / row.fetch_us if row.fetch_us else 0.0
    us = row.us / max(1, len(steps.loud))
    return us, steps.share_of_step(us)


# -- datasets --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TensorOfListOfArrays(Rule):
    """A tensor is created from a list of NumPy arrays."""

    code = "DATA010"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Stack the arrays first: torch.from_numpy(np.stack(arrays)), with .to(dtype) "
        "for another dtype."
    )

    share: float = knob(0.05, "Report only if it takes at least this share of a step or batch.")
    least_us: float = knob(100.0, "Report only if a step or batch loses at least this many us.")
    fewest: int = knob(64, "Report only lists with at least this many numbers.")

    def detect(self, lists: Rows[ListedRow], steps: Steps) -> Iterator[Finding]:
        watched = len(steps.loud)
        for each in lists:
            us, share = time_inside(each, each.n, steps)
            if not (each.n and watched) or share < self.share or us < self.least_us:
                continue
            if each.numbers < self.fewest * each.n:
                continue
            in_worker = each.where == "worker"
            taken, part = amounts.duration(us), amounts.percent(share)
            costs = (
                f"{taken}, {part} of a worker's time for a batch"
                if in_worker
                else f"{taken} per step, {part} of it"
            )
            yield Finding(
                each.site,
                f"a list of {each.arrays / each.n:.3g} NumPy arrays becomes a tensor number by "
                f"number ({each.numbers / each.n:,.0f} numbers): {costs}",
                steps=watched,
                per_step=each.n / watched,
                lost_us_per_step=None if in_worker else us,
                basis="none" if in_worker else "estimated",
                severity=Severity.NOTE if in_worker else None,
            )


MAKERS = frozenset(
    {"default_rng", "RandomState", "Random", "Generator", "manual_seed", "check_random_state"}
)
"""Calls that make a generator."""


class WorkersDrawAlike(Rule):
    """The workers of a loader draw the same random numbers."""

    code = "DATA011"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Create the generator in the worker: in worker_init_fn, or when the first sample is "
        "requested, and seed it with torch.initial_seed(), which differs by worker and epoch."
    )

    def detect(self, draws: Rows[DrawsRow], batches: Batches, source: Source) -> Iterator[Finding]:
        loaders = {each.number: each for each in batches.loaders}
        for each in draws:
            loader = loaders.get(each.loader)
            made, used = (loader.made_at, loader.consumed_at) if loader else (None, None)
            site = _generator_site(source, each) or made or used
            of = f" of the loader created at {made}" if made is not None and made != site else ""
            yield Finding(
                site,
                f"{len(each.workers)} workers{of} draw the same numbers: each has a copy of "
                f"{each.name} ({each.kind}) in the same state",
                per_step=1.0,
            )


def _generator_site(source: Source, row: DrawsRow) -> Site | None:
    """The only line of the owner's class that gives a new generator to its attribute."""
    attribute, owner = row.name.rpartition(".")[2], row.owner.rpartition(".")[2]
    found = [
        source.site_of(file, node)
        for file, cls in source.every(ast.ClassDef)
        if cls.name == owner
        for node in nodes_in(cls, ast.Assign, ast.AnnAssign)
        if any(name_of(each) == attribute for each in targets_of(node))
        and bool(called_in(node.value or node) & MAKERS)
    ]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class FileReadAgain(Rule):
    """A whole file is read again for each sample."""

    code = "DATA012"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Read it once, in __init__ or when the first sample is requested, and only index it "
        'here. np.load(..., mmap_mode="r") maps an array that is larger than memory.'
    )

    again: float = knob(0.5, "Report if at least this share of a line's reads repeats a file.")
    share: float = knob(0.1, "Report only if it takes at least this share of a step or batch.")
    least_us: float = knob(200.0, "Report only if a step or batch loses at least this many us.")

    def detect(self, files: Rows[RereadRow], steps: Steps) -> Iterator[Finding]:
        for each in files:
            us, share = time_inside(each, each.batches, steps)
            if not (each.batches and each.n and steps.loud) or each.again < self.again * each.n:
                continue
            if share < self.share or us < self.least_us:
                continue
            in_worker = each.where == "worker"
            taken, part = amounts.duration(us), amounts.percent(share)
            costs = (
                f"times for a batch: {taken}, {part} of a worker's time for it"
                if in_worker
                else f"times a step: {taken}, {part} of it"
            )
            reads = each.n / each.batches
            yield Finding(
                each.site,
                f"{each.name} reads a whole file ({os.path.basename(each.path)}, "
                f"{amounts.size(each.bytes)}) again and again, {reads:.3g} {costs}",
                steps=len(steps.loud),
                per_step=reads,
                lost_us_per_step=None if in_worker else us * each.again / each.n,
                basis="none" if in_worker else "estimated",
                severity=Severity.NOTE if in_worker else None,
                facts=(("file", each.path), ("time inside", taken)),
            )
