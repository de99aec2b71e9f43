"""CFG010: an evaluation runs in train mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .rows import TrainModeForwardRow, by_class
from .scoring import evaluation


@dataclass(frozen=True)
class EvaluatedInTrainMode(Rule):
    """An evaluation runs in train mode."""

    code = "CFG010"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.5,
        "Share of the optimizer's steps beside which it may run at most, where no name says that "
        "it evaluates.",
    )

    def detect(
        self, forwards: Rows[TrainModeForwardRow], machine: Machine, source: Source
    ) -> Iterator[Finding]:
        for each in forwards:
            found = evaluation(source, each.site, each.site_of(each.within))
            if found is None or (not found.named and each.times > self.share * each.steps):
                continue
            yield Finding(
                found.site,
                f"{each.module} is evaluated here in train mode: {by_class(each.parts)} act as in training",
                steps=each.times,
                seen_on=machine.device,
                facts=(
                    *((name, str(n)) for name, n in each.parts.items()),
                    ("optimizer steps so far", str(each.steps)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy("Call eval() on it before the evaluation, and train() when it is over.")
