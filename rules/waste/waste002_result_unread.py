"""WASTE002: results that are computed and reach nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.thrown_work import Thrown, ThrownWork, handed_on
from auditor.evidence.source.files import Source
from auditor.model import Finding, Remedy, Severity
from auditor.rule import knob

from .wasting import WasteRule, also, worth

WRITES = frozenset({"copy", "fill", "zero"})
"""Operators that leave something in a tensor which may be kept to be read later."""


@dataclass(frozen=True)
class ResultUnread(WasteRule):
    """A result is computed and nothing reads it."""

    code = "WASTE002"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.02, "Share of the step's work from which it is reported.")
    operators: float = knob(
        0.01, "Share of the step's operators from which it is a note where its work is less."
    )
    several: int = knob(3, "Operators that it must have then.")

    def detect(self, thrown: ThrownWork, machine: Machine, source: Source) -> Iterator[Finding]:
        for each in thrown.of("result"):
            sites = (each.site, *each.others)
            little = each.share < self.share
            if little and not self._is_several(each, thrown.operators):
                continue
            if any(handed_on(source, site) for site in sites):
                continue
            yield self.report(
                thrown,
                each,
                machine,
                "nothing reads what is computed here (most of it "
                f"`{each.op.partition(',')[0]}`): {worth(each)}",
                facts=also(each.others),
                severity=Severity.NOTE if little else None,
            )

    def _is_several(self, each: Thrown, operators: float) -> bool:
        """By the number of operators, none of which may be for later."""
        enough = max(self.several, self.operators * operators)
        return bool(operators) and each.operators >= enough and each.op not in WRITES

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Leave it out, or compute it only on the steps that use it (inside the `if` that logs)."
        )
