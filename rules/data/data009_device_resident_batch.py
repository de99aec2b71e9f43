"""DATA009: a data loader yields tensors that are on the device already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.batches import Batches, InWorker
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

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
