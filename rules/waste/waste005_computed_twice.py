"""WASTE005: the same operators on the same operands, twice in one step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.thrown_work import ThrownWork
from auditor.model import Finding, Remedy, Severity
from auditor.rule import knob

from .wasting import WasteRule, worth


@dataclass(frozen=True)
class ComputedTwice(WasteRule):
    """The same thing is computed twice in a step."""

    code = "WASTE005"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.02, "Share of the step's work from which it is reported.")
    size: int = knob(
        1 << 20, "Bytes computed per step from which it is reported with no product of matrices."
    )

    def detect(self, thrown: ThrownWork, machine: Machine) -> Iterator[Finding]:
        for each in thrown.of("repeat", "again"):
            if each.share < self.share or not (each.products or each.nbytes >= self.size):
                continue
            where = "" if each.other is None else f" at {each.other}"
            yield self.report(
                thrown,
                each,
                machine,
                f"what is computed here is computed{where} as well, of the same tensors: "
                f"{worth(each)}",
                severity=Severity.NOTE if each.what == "again" else None,
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy("Keep the first result in a variable and use it again, detached for metrics.")
