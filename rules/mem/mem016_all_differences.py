"""MEM016: distances of all pairs through a tensor of all differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.grouping import together
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .rows import DifferencesRow


@dataclass(frozen=True)
class Hints:
    """What is summed: ``squares`` or ``absolute``."""

    kind: str


@dataclass(frozen=True)
class AllDifferences(Rule):
    """Distances of all pairs are made through a tensor of all differences."""

    code = "MEM016"
    severity = Severity.NOTE
    since = "0.1"

    least: int = knob(1 << 20, "Bytes of the tensor of differences from which it is reported.")

    def detect(self, differences: Rows[DifferencesRow], machine: Machine) -> Iterator[Finding]:
        for seen in together(differences, _line):
            each, steps = max(seen, key=lambda row: row.bytes), len({row.step for row in seen})
            if each.bytes < self.least:
                continue
            kept = ", and keeps them for the backward" if any(row.graph for row in seen) else ""
            yield Finding(
                each.site,
                f"distances of all pairs: this line makes {amounts.size(each.bytes)} of "
                f"differences, {each.size} numbers for each distance{kept}",
                steps=steps,
                per_step=len(seen) / steps,
                seen_on=machine.device,
                facts=(
                    ("differences", amounts.size(each.bytes)),
                    ("distances", amounts.size(each.bytes // each.size)),
                ),
                hints=Hints(each.kind),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        if finding.hints_as(Hints).kind == "absolute":
            return Remedy("torch.cdist(x, y, p=1) makes the same sums without the differences.")
        return Remedy(
            "torch.cdist(x, y) makes the distances without the differences (squared: .pow(2)); or "
            "take squared norms and one product of matrices: x2 + y2 - 2 * x @ y.mT, clamped at 0."
        )


def _line(row: DifferencesRow) -> tuple[str, int, str]:
    return row.site.file, row.site.line, row.kind
