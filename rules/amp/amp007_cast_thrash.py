"""AMP007: converting between types takes a large share of the device's time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .precision import HALF, Precision


@dataclass(frozen=True)
class CastThrash(Rule):
    """Converting tensors between types takes a large share of the device's time."""

    code = "AMP007"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.1, "Share of kernel time in conversions from which it is reported.")
    least: int = knob(10, "Conversions in the trace below which nothing is reported.")

    def detect(self, precision: Precision) -> Iterator[Finding]:
        us = precision.cast_us
        if (
            us < self.share * precision.kernel_us
            or precision.casts < self.least
            or precision.share(HALF, "8-bit") <= 0
        ):
            return
        yield Finding(
            None,
            f"converting between types takes {amounts.percent(us / precision.kernel_us)} of the "
            "kernel time, "
            f"{amounts.digits(precision.casts / precision.steps)} conversions "
            f"{'per step' if precision.marked else 'in the trace'}",
            steps=precision.steps if precision.marked else 0,
            per_step=precision.casts / precision.steps if precision.marked else 0.0,
            lost_us_per_step=us / precision.steps if precision.marked else None,
            basis="estimated" if precision.marked else "none",
            seen_on="trace",
            severity=None if precision.marked else Severity.NOTE,
            facts=precision.facts,
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Enter autocast once around the whole forward pass; for inference convert the model "
            "once (model.bfloat16()); "
            "keep tensors that only 16-bit operators use in 16 bits."
        )
