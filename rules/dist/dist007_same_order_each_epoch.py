"""DIST007: a DistributedSampler shuffles each epoch alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.data_parallel import SamplerEpochs
from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import loop_of_epochs
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..placing import places_of


@dataclass(frozen=True)
class SameOrderEachEpoch(Rule):
    """A DistributedSampler shuffles every epoch alike"""

    code = "DIST007"
    severity = Severity.WARNING
    since = "0.1"

    epochs: int = knob(2, "Epochs with one number that must have begun in a pass.")
    share: float = knob(0.5, "Share of the pass's steps that must take batches of the loader.")
    replicas: int = knob(2, "Ranks that the sampler must divide its samples among.")

    def detect(
        self, samplers: SamplerEpochs, machine: Machine, source: Source
    ) -> Iterator[Finding]:
        for each in samplers.each:
            if each.epochs < self.epochs or each.replicas < self.replicas:
                continue
            if each.share < self.share:
                continue
            loop = loop_of_epochs(source, each.stack)
            yield Finding(
                loop or each.site,
                f"{amounts.count(each.epochs, 'epoch')} began in the same order: the "
                f"DistributedSampler was told epoch {each.epoch} each time",
                steps=each.epochs,
                seen_on=machine.device,
                facts=(
                    ("epochs that began", f"{each.epochs}, all with number {each.epoch}"),
                    ("sampler", str(each.made_at) if each.made_at else "made by a library"),
                ),
                places=places_of(loop, each.site) if loop else (),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Call sampler.set_epoch(epoch) at the beginning of each epoch, before the loader is "
            "iterated; a run that resumes goes on with the epoch's number, not with 0."
        )
