"""SYNC011: numbers written in Python are sent to the device on every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.copies import Copies
from auditor.model import Finding, Remedy, Severity

from ..copying import CopyRule


@dataclass(frozen=True)
class Hints:
    """Whether the values are written on the line, and not made anew."""

    written: bool


@dataclass(frozen=True)
class ConstantSentEveryStep(CopyRule):
    """Python numbers are sent to the device in the step."""

    code = "SYNC011"
    severity = Severity.WARNING
    since = "0.1"
    leads = 5

    def detect(self, copies: Copies) -> Iterator[Finding]:
        for place in self.usual(copies.sites("constant", blocking=True)):
            what = (
                f"Python numbers ({place.amount})"
                if place.written
                else f"numbers ({place.amount}) made on the host"
            )
            message = f"{what} are sent to the device on {place.pattern}: {copies.host_waits} for the copy"
            yield self.report(copies, place, place.site, message, hints=Hints(place.written))

    def remedy(self, finding: Finding) -> Remedy | None:
        once = "Make the tensor once, before the loop"
        if finding.hints_as(Hints).written:
            return Remedy(
                f"{once}; a scalar that changes can be made with torch.full((), value, "
                "device=...), which copies nothing."
            )
        return Remedy(
            f"{once}, where its values stay the same. Values that come anew (an environment's "
            "observation) must be copied, but "
            "need not be waited for: send several together, from pinned memory with "
            "non_blocking=True."
        )
