"""DIST006: DistributedDataParallel looks for unused parameters, and there are none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.data_parallel import DataParallel
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import ANY, Permit
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class SearchForNothing(Rule):
    """DistributedDataParallel looks for unused parameters on each step, and there are none"""

    code = "DIST006"
    severity = Severity.NOTE
    since = "0.1"
    edits = (Permit("drop_keyword", (ANY,), "find_unused_parameters"),)

    least: int = knob(5, "Steps of an optimizer whose backward passes must have reached all.")
    ranks: int = knob(2, "Ranks below which it is not reported.")

    def detect(self, modules: DataParallel, machine: Machine, source: Source) -> Iterator[Finding]:
        for module in modules.each:
            if not module.find_unused or module.unused != 0 or module.ranks < self.ranks:
                continue
            steps = sum(1 for n in module.averaged if n)
            if steps < self.least:
                continue
            call = ""
            if module.made_at is not None:
                call = source.call_with_keyword(module.made_at, "find_unused_parameters")
            yield Finding(
                module.made_at,
                f"`{module.what}` was given find_unused_parameters, and each backward pass reached "
                "all of its parameters",
                steps=steps,
                seen_on=machine.device,
                facts=(
                    ("backward passes", amounts.count(sum(module.averaged), "pass", "passes")),
                    ("of these with an unused parameter", "none"),
                ),
                hints=Call(call),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        text = "Drop find_unused_parameters: torch says so when a parameter is left out after all."
        call = finding.hints_as(Call).name
        if finding.site is None or not call:
            return Remedy(text)
        reason = "a step that the audit did not see may leave a parameter out, which raises then"
        return Remedy(
            text,
            (Edit(finding.site, "drop_keyword", call, "find_unused_parameters", reason=reason),),
        )


@dataclass(frozen=True)
class Call:
    """Last name of the call that is given the keyword; empty where it is not on the line."""

    name: str
