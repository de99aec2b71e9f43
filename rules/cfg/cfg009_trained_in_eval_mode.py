"""CFG009: a model stays in eval mode after an evaluation and is trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.evaluations import evaluates
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .rows import SwitchedRow, by_class


@dataclass(frozen=True)
class TrainedInEvalMode(Rule):
    """A model stays in eval mode after an evaluation, and is trained on in it."""

    code = "CFG009"
    severity = Severity.WARNING
    since = "0.1"

    fewest: int = knob(3, "Steps in eval mode before anything is reported.")

    def detect(
        self, switched: Rows[SwitchedRow], machine: Machine, source: Source
    ) -> Iterator[Finding]:
        for each in switched:
            if each.steps < self.fewest:
                continue
            if each.grads and not evaluates(source, each.site):
                continue
            yield Finding(
                each.site,
                f"{each.module} was put into eval mode here, after {each.before} steps in train "
                f"mode, and {each.steps} steps trained it on in eval mode, where its {by_class(each.parts)} "
                "act in another way",
                steps=each.steps,
                per_step=1.0,
                seen_on=machine.device,
                facts=tuple((name, str(n)) for name, n in each.parts.items()),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Call train() on it when the evaluation is over, or before the training goes on."
        )
