"""NUM005: updates that are too small for the dtype of the weights, and are rounded away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .rows import UpdateRow

BITS = {"float16": 11, "bfloat16": 8}
"""Bits of significand: an update below 2 ** -(bits + 1) of the weight is rounded away."""


LEAST = 100
"""Updates that must have been looked at."""


@dataclass(frozen=True)
class UpdatesRoundedAway(Rule):
    """Updates are too small for the dtype of the weights, and are rounded away."""

    code = "NUM005"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    share: float = knob(0.5, "Share of the updates that were lost from which it is reported.")
    fewest: int = knob(3, "Steps of the optimizer below which nothing is reported.")

    def detect(self, updates: Rows[UpdateRow], machine: Machine) -> Iterator[Finding]:
        for each in updates:
            if each.steps < self.fewest or each.asked < LEAST or each.share < self.share:
                continue
            least = 2.0 ** -(BITS.get(each.dtype, 8) + 1)
            yield Finding(
                each.site,
                f"{each.optimizer} leaves {amounts.percent(each.share)} of the {each.dtype} "
                "weights that have a gradient as they are: an update "
                f"at a rate of {each.rate:g} is below {least:.1g} of the weight and rounded away",
                steps=each.steps,
                per_step=1.0,
                seen_on=machine.device,
                facts=(
                    ("updates looked at", f"{each.asked} in {each.steps} steps"),
                    ("lost", f"{each.kept}"),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Keep the weights in float32 and compute under torch.autocast; or take an optimizer "
            "that rounds at random or keeps "
            "a copy in float32."
        )
