"""DATA004, 8 and 9: how batches reach the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.batches import Batches, InWorker
from auditor.evidence.recorded.copies import Copies
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.trace.steps import TraceSteps
from auditor.model import Finding, Remedy, Severity
from auditor.recordings.schema import ListedRow, RereadRow
from auditor.rule import Rule, knob

from ..copying import NOT_WAITING, CopyRule, Moves
from ..transfers import TransferRule


@dataclass(frozen=True)
class PinnedBatchCopiedBlocking(CopyRule):
    """Pinned batches are copied to the device and the host waits."""

    code = "DATA004"
    severity = Severity.NOTE
    since = "0.1"
    edits = (NOT_WAITING,)
    leads = 1

    def detect(self, copies: Copies, source: Source, configs: Configs) -> Iterator[Finding]:
        for place in self.usual(copies.sites("batch", blocking=True, pinned=True)):
            moves = self.waiting_moves(place, source, configs)
            decided = self.waits_because(moves)
            how = f"with {decided}" if decided else "without non_blocking=True"
            message = f"{place.amount} of pinned batches are copied to the device on {place.pattern} {how}"
            yield self.report(copies, place, place.site, message, hints=Moves(moves))

    def remedy(self, finding: Finding) -> Remedy | None:
        text = "Move the batch with non_blocking=True: the copy then runs while the host goes on."
        edits = tuple(self.without_waiting(finding))
        advice, refused = self.decided_elsewhere(finding)
        return Remedy(text + advice, edits, refused=None if edits else refused)


@dataclass(frozen=True)
class StepBoundByCopiesToDevice(TransferRule):
    """The device waits for copies from the host."""

    code = "DATA008"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, steps: TraceSteps) -> Iterator[Finding]:
        yield from self.bound(steps, "to_device", "from the host")

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Send less (uint8 or half precision, converted on the device), from pinned memory with "
            "non_blocking=True, and the "
            "next batch on a side stream while this one computes; or keep the data on the device."
        )


REMEDIES = {
    "collate function": "Let the collate function build host tensors",
    "dataset": "Let the dataset return host tensors",
    "default device": "Do not set the default device to CUDA around data "
    "loading, or build the batch with device='cpu'",
}


@dataclass(frozen=True)
class Hints:
    """Why the batch lies on the device: a key of ``REMEDIES``."""

    cause: str = ""


@dataclass(frozen=True)
class LoaderYieldsDeviceTensors(Rule):
    """A data loader yields tensors that are on the device already."""

    code = "DATA009"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    share: float = knob(
        0.5, "Share of the diagnosed steps on which a batch must come on the device."
    )

    def detect(self, batches: Batches, machine: Machine) -> Iterator[Finding]:
        if batches.in_worker is not None:
            yield _in_worker(batches.in_worker)
            return
        machine.nothing_seen_without_cuda("a batch cannot be on a device")
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
                seen_on=machine.device,
                facts=resident.facts,
                hints=Hints(resident.cause),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        first = REMEDIES.get(finding.hints_as(Hints).cause, "Let the loader yield host tensors")
        return Remedy(
            f"{first}, set pin_memory=True, and move the batch in the step with .to(device, "
            "non_blocking=True)."
        )


def _in_worker(found: InWorker) -> Finding:
    many = found.loader.workers
    return Finding(
        found.site,
        f"on a GPU this ends the run: {many} worker process{'es' * (many > 1)} of the loader would "
        "use CUDA, which cannot be initialised in a forked process (the rehearsal ended so)",
        steps=1,
        per_step=1.0,
        seen_on="rehearsal",
        severity=Severity.ERROR,
        facts=(("dataset", found.loader.dataset), ("num_workers", str(many))),
        hints=Hints("dataset"),
    )


def time_inside(row: ListedRow | RereadRow, batches: int, steps: Steps) -> tuple[float, float]:
    """Us in a step and the share of the step's own time; of what a worker called us in each of its
    ``batches`` and the share of its time for them. Of no step and no batch it is nothing.
    """
    if row.where == "worker":
        return row.us / max(1, batches), row.us / row.fetch_us if row.fetch_us else 0.0
    us = row.us / max(1, len(steps.loud))
    return us, steps.share_of_step(us)
