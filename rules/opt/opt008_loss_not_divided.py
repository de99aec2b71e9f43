"""OPT008: the loss of a micro-batch is not divided by their number."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.grouping import together
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source, name_of
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

from .rows import MicroBatchRow

FOLLOW_SCALE = ("SGD", "ASGD")
"""Optimizers whose update grows with the gradients; others divide by their size."""


@dataclass(frozen=True)
class LossNotDivided(Rule):
    """Gradients of several micro-batches are added up, and no loss is divided by their number"""

    code = "OPT008"
    severity = Severity.NOTE
    since = "0.1"

    least: int = knob(3, "Steps of the optimizer in which it must have happened.")
    share: float = knob(0.9, "Share of the steps with several passes that these must be.")

    def detect(
        self, micro_batches: Rows[MicroBatchRow], source: Source, machine: Machine
    ) -> Iterator[Finding]:
        for steps in together(micro_batches, lambda row: (row.at, row.optimizer)):
            site, optimizer = steps[0].site, steps[0].optimizer
            undivided = sum(step.undivided for step in steps)
            if optimizer not in FOLLOW_SCALE or undivided < self.least:
                continue
            if undivided < self.share * len(steps) or _is_given(source, site):
                continue
            n = Counter(step.n for step in steps).most_common(1)[0][0]
            yield Finding(
                site,
                f"{n} backward passes add up the gradients of means over a micro-batch each, and "
                f"nothing divides them: {optimizer} steps {n} times as far as for one batch of "
                "that size",
                steps=undivided,
                seen_on=machine.device,
                facts=(("micro-batches of a step", str(n)),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Divide the loss by the number of micro-batches before backward, and choose the "
            "learning rate for their mean."
        )


def _is_given(source: Source, site: Site) -> bool:
    """Whether the line's backward is given a gradient to begin with."""
    calls: list[ast.Call] = [
        call for call in source.calls_at(site) if name_of(call.func) == "backward"
    ]
    names = {item.arg for call in calls for item in call.keywords}
    return any(call.args for call in calls) or bool(names - {"retain_graph", "create_graph"})
