"""DIST016: batch norms see a few samples of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..placing import places_of
from .rows import NormBatchRow


@dataclass(frozen=True)
class FewSamplesNormed(Rule):
    """Batch norms see only the few samples of their own rank"""

    code = "DIST016"
    severity = Severity.NOTE
    since = "0.1"

    samples: int = knob(4, "Samples of a rank up to which it is reported.")
    values: int = knob(16, "Values of a channel up to which it is a warning.")
    least: int = knob(5, "Forwards that must have had no more.")
    ranks: int = knob(2, "Ranks below which there is nothing to share.")

    def detect(self, norms: Rows[NormBatchRow], machine: Machine) -> Iterator[Finding]:
        for each in norms:
            if each.samples > self.samples or each.ranks < self.ranks:
                continue
            if each.n < self.least:
                continue
            yield Finding(
                each.site,
                f"the batch norms of `{each.what}` see at most {each.samples} samples, those of "
                f"one rank of {each.ranks}: at the fewest, {each.values:,} values of a channel",
                steps=each.n,
                seen_on=machine.device,
                severity=Severity.WARNING if each.values <= self.values else None,
                facts=(("batch norms", f"{each.norms} ({each.norm})"),),
                places=places_of(each.site, each.site_of(each.norm_at)),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "On GPUs wrap `torch.nn.SyncBatchNorm.convert_sync_batchnorm(module)`, whose norms see "
            "the samples of all ranks; or use GroupNorm, which needs no batch."
        )
