"""DIST005: gradients are averaged over the ranks after each micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from auditor import amounts
from auditor.evidence.recorded.data_parallel import DataParallel
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class AveragedTooOften(Rule):
    """Gradients are averaged over the ranks more than once for a step of the optimizer"""

    code = "DIST005"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(3, "Steps of an optimizer for which it must have happened.")
    share: float = knob(0.5, "Share of its steps that this must be at least.")
    ranks: int = knob(2, "Ranks below which nothing is sent.")

    def detect(self, modules: DataParallel, machine: Machine) -> Iterator[Finding]:
        for module in modules.each:
            often = [n for n in module.averaged if n > 1]
            if module.ranks < self.ranks or len(often) < self.least:
                continue
            if len(often) < self.share * len(module.averaged):
                continue
            usual = int(median(often))
            yield Finding(
                module.at,
                f"gradients of `{module.what}` are averaged over {module.ranks} ranks after each "
                f"of {usual} backward passes; the last of them is enough",
                steps=len(often),
                per_step=float(usual - 1),
                seen_on=machine.device,
                facts=(
                    ("averaged for a step of the optimizer", f"{usual} times"),
                    ("gradients", amounts.size(module.nbytes)),
                    (
                        "sent for nothing by each rank",
                        f"{amounts.size((usual - 1) * module.nbytes)} per step",
                    ),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Run forward and backward of every micro-batch but the last one in `with "
            "model.no_sync():`; both must be inside. Where these are several losses of one batch, "
            "add them and call backward once."
        )
