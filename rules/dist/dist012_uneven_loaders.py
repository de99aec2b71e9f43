"""DIST012: the ranks' loaders have different numbers of batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.data_parallel import DataParallel
from .loader_lengths import LoaderLengths
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import exhausts, joins, trains
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule


@dataclass(frozen=True)
class UnevenLoaders(Rule):
    """The ranks of a data parallel training have different numbers of batches"""

    code = "DIST012"
    severity = Severity.ERROR
    since = "0.1"

    def detect(
        self, lengths: LoaderLengths, modules: DataParallel, source: Source, machine: Machine
    ) -> Iterator[Finding]:
        for each in lengths.each:
            ranks = len(each.batches)
            over_all = any(one.ranks == ranks and one.averaged for one in modules.each)
            if not each.uneven or not over_all or joins(source, each.at.file):
                continue
            if not exhausts(source, each.at) or not trains(source, each.at.file, each.at.line):
                continue
            most = max(each.batches, key=lambda one: one[1])
            fewest = min(each.batches, key=lambda one: one[1])
            yield Finding(
                each.made_at,
                f"rank {most[0]} has {amounts.count(most[1], 'batch', 'batches')} an epoch and "
                f"rank {fewest[0]} has {fewest[1]:,}: the loop at {each.at} goes to the end of "
                "both, and the ranks with more batches wait for gradients that do not come",
                seen_on=machine.device,
                facts=(
                    ("batches of an epoch by rank", ", ".join(f"{n:,}" for _, n in each.batches)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Let a DistributedSampler divide the dataset: it pads the shares to one length "
            "(drop_last=True cuts them). Where the shares must differ, train inside "
            "`with model.join():`."
        )
