"""COMP002: a function that is compiled again and again for one guard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.compiles import Compiles
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .recompiling import EDITS, Hints, as_long_as, because, hints, named, remedy


@dataclass(frozen=True)
class RecompilesAgainAndAgain(Rule):
    """A function is compiled again and again, since one value changes"""

    code = "COMP002"
    severity = Severity.WARNING
    since = "0.1"
    edits = EDITS

    least: int = knob(
        2, "Steps on which one guard must have failed: a first time teaches the compiler."
    )

    def detect(self, compiles: Compiles, steps: Steps, machine: Machine) -> Iterator[Finding]:
        reached = {each.function for each in compiles.recompiled if each.limit}
        for each in compiles.recompiled:
            if each.steps < self.least or each.function in reached:
                continue
            as_long = as_long_as(each.us, steps)
            yield Finding(
                each.site,
                f"{named(each)} was compiled anew on {amounts.count(each.steps, 'step')}, since "
                f"{because(each)}: {amounts.duration(each.us)} of compilation"
                + (f", {as_long}" if as_long else ""),
                seen_on=machine.device,
                facts=(
                    ("guard that failed", each.guard),
                    ("compilations for it", str(each.n)),
                    ("time of these", amounts.duration(each.us)),
                ),
                hints=hints(each, compiles),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return remedy(finding.hints_as(Hints))
