"""AMP003: 16-bit matrix products whose sizes are no multiples of 8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob

from .precision import Precision


@dataclass(frozen=True)
class AwkwardProductSizes(Rule):
    """16-bit matrix products have sizes that are no multiples of 8."""

    code = "AMP003"
    severity = Severity.NOTE
    since = "0.1"

    share: float = knob(0.1, "Share of kernel time in such products from which it is reported.")

    def detect(self, precision: Precision) -> Iterator[Finding]:
        if not precision.shapes:
            raise NotLooked("the trace holds no shapes: record it with record_shapes=True")
        us = sum(time for _, time in precision.awkward)
        if us < self.share * precision.kernel_us:
            return
        sizes = precision.awkward
        yield Finding(
            None,
            "16-bit products whose sizes are no multiples of 8 take "
            f"{amounts.percent(us / precision.kernel_us)} of the kernel time: "
            f"most of it with k x n = {sizes[0][0]}",
            steps=precision.steps if precision.marked else 0,
            seen_on="trace",
            facts=tuple(
                (f"k x n = {size}", f"{amounts.percent(time / precision.kernel_us)} of kernel time")
                for size, time in sizes[:5]
            ),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Pad the size (vocabulary, classes, sequence) up to a multiple of 8, better 64, and "
            "mask what was added."
        )
