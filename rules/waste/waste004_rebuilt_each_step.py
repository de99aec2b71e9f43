"""WASTE004: tensors that are built anew on every step and are always the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.thrown_work import ThrownWork
from auditor.model import Finding, Remedy, Severity
from auditor.rule import knob

from .wasting import WasteRule, also, worth


@dataclass(frozen=True)
class RebuiltEachStep(WasteRule):
    """A tensor is built anew on every step and is always the same."""

    code = "WASTE004"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.01, "Share of the step's work from which it is reported.")
    operators: int = knob(3, "Operators per step from which small tables are reported.")
    least: int = knob(1 << 12, "Bytes built per step below which nothing is reported.")
    size: int = knob(1 << 18, "Bytes built per step from which fewer operators are, too.")

    def detect(self, thrown: ThrownWork, machine: Machine) -> Iterator[Finding]:
        for each in thrown.of("constant"):
            many = each.operators >= self.operators and each.nbytes >= self.least
            if each.share < self.share or not (many or each.nbytes >= self.size):
                continue
            if any(
                (site.file, site.line) in thrown.copied_from for site in (each.site, *each.others)
            ):
                continue
            yield self.report(
                thrown,
                each,
                machine,
                f"the same {amounts.size(each.nbytes)} are built anew on each step, from nothing "
                f"that changes: {worth(each)}",
                facts=also(each.others),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            'Make it once: self.register_buffer("name", tensor, persistent=False) in __init__ '
            "(of the largest size, then sliced), or a cache by size."
        )
