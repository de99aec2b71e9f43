"""COMP011: gradients of a data parallel module that all come at the end of one compiled backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.data_parallel import DataParallel
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class GradientsAtOnce(Rule):
    """All gradients come from one compiled backward, and are sent when it has ended"""

    code = "COMP011"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(5, "Steps of an optimizer whose backward passes must have been like this.")
    share: float = knob(0.9, "Share of the backward passes that must have been like this.")
    buckets: int = knob(2, "Buckets below which there is nothing to hide.")

    def detect(self, modules: DataParallel, machine: Machine) -> Iterator[Finding]:
        for module in modules.each:
            steps = sum(1 for n in module.at_once if n)
            passes = sum(module.averaged)
            if module.ranks < 2 or module.buckets < self.buckets or steps < self.least:
                continue
            if sum(module.at_once) < self.share * passes:
                continue
            yield Finding(
                module.made_at,
                f"all gradients of `{module.what}` come from one compiled backward: nothing is "
                "sent to the other ranks before it has ended",
                steps=steps,
                seen_on=machine.device,
                facts=(
                    ("backward passes like this", f"{sum(module.at_once)} of {passes}"),
                    ("buckets", f"{module.buckets} or more"),
                    ("gradients", amounts.size(module.nbytes)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Let compiled code of the module run for the first time beneath the forward of DDP, "
            "which is compiled in one graph for each bucket: no trial call before it is wrapped, or "
            "torch.compiler.reset() behind that; and leave torch._dynamo.config.optimize_ddp on."
        )
