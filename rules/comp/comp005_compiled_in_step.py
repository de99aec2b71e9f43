"""COMP005: torch.compile is called on every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.compiled_regions import CompiledRegions
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class CompiledInStep(Rule):
    """torch.compile is called inside the step"""

    code = "COMP005"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(
        3, "Steps that must have called it: models of several stages compile once each."
    )
    share: float = knob(0.25, "Share of the steps of these passes that must have called it.")

    def detect(self, regions: CompiledRegions, steps: Steps, machine: Machine) -> Iterator[Finding]:
        taken = len(steps.quiet) + len(steps.anomaly_off)
        for each in regions.in_steps:
            if each.made_on < max(self.least, self.share * taken):
                continue
            yield Finding(
                each.site,
                f"`{each.what or 'a function'}` is given to torch.compile on "
                f"{amounts.count(each.made_on, 'step')}",
                lost_us_per_step=each.us,
                basis="measured",
                seen_on=machine.device,
                facts=(("time of a call", amounts.duration(each.us)),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Compile once, before the loop, and call what that returns; a function that is defined "
            "in the step takes what changes as arguments."
        )
