"""DIST008: several ranks train on the same batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.data_parallel import DataParallel, RankBatches
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class SameBatchesOnAllRanks(Rule):
    """All ranks of a data parallel training get the same batches"""

    code = "DIST008"
    severity = Severity.ERROR
    since = "0.1"

    least: int = knob(5, "Steps in which all ranks must have got equal batches.")
    share: float = knob(0.9, "Share of the steps with batches that these must be at least.")
    fed: float = knob(0.5, "Share of all steps that must have taken batches of the loader.")
    different: int = knob(3, "Batches among them that must differ from one another.")

    def detect(
        self, batches: RankBatches, modules: DataParallel, machine: Machine
    ) -> Iterator[Finding]:
        over_all = any(
            module.ranks == batches.world_size and module.averaged for module in modules.each
        )
        for each in batches.each:
            if not over_all or each.steps < max(self.least, self.share * each.of):
                continue
            if each.different < self.different or each.fed < self.fed:
                continue
            yield Finding(
                each.made_at,
                f"{each.ranks} ranks got the same batches in {each.steps} of {each.of} steps: "
                "what one rank computes, the others compute again",
                steps=each.steps,
                per_step=1.0,
                seen_on=machine.device,
                facts=(
                    ("ranks that got equal batches", str(each.ranks)),
                    ("different batches among them", str(each.different)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Give the loader sampler=DistributedSampler(dataset) in the place of shuffle=True, and "
            "call sampler.set_epoch(epoch) at the beginning of each epoch; an IterableDataset takes "
            "its own share by torch.distributed.get_rank()."
        )
