"""OPT006: gradients are clipped when there is nothing to clip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

from .rows import ClippingRow


@dataclass(frozen=True)
class Hints:
    """Whether the line runs before the first backward rather than behind the step."""

    absent: bool


@dataclass(frozen=True)
class ClippingMisplaced(Rule):
    """Gradients are clipped before the backward or after the step, where it changes nothing."""

    code = "OPT006"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    share: float = knob(0.5, "Share of the optimizer's steps from which it is reported.")
    fewest: int = knob(3, "Steps below which nothing is reported.")

    def detect(self, clippings: Rows[ClippingRow], machine: Machine) -> Iterator[Finding]:
        told: set[Site] = set()
        for line in clippings:
            if line.n < max(self.fewest, self.share * line.steps) or line.site in told:
                continue
            told.add(line.site)  # of a line with several optimizers the first
            why = (
                "no gradient was there yet, and the backward ran behind it"
                if line.absent
                else "the optimizer had stepped with these gradients already, and the next backward "
                "ran behind it"
            )
            yield Finding(
                line.site,
                f"this clips nothing that {line.optimizer} steps with, on {line.n} of "
                f"{line.steps} steps: {why}",
                steps=line.n,
                per_step=line.n / line.steps,
                seen_on=machine.device,
                hints=Hints(line.absent),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        where = "behind the backward" if finding.hints_as(Hints).absent else "before the step"
        return Remedy(
            f"Move it {where}: backward(), then clip, then step(); with a GradScaler "
            "scaler.unscale_(optimizer) comes before the clip."
        )
