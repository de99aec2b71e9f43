"""DATA008: a large share of the step is spent copying its input to the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.trace.steps import TraceSteps
from auditor.model import Finding, Remedy, Severity

from ..transfers import TransferRule


@dataclass(frozen=True)
class StepBoundByCopiesToDevice(TransferRule):
    """The device waits for copies from the host."""

    code = "DATA008"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, steps: TraceSteps) -> Iterator[Finding]:
        yield from self.bound(steps, "to_device", "from the host")

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Send less (uint8 or half precision, converted on the device), from pinned memory with "
            "non_blocking=True, and the "
            "next batch on a side stream while this one computes; or keep the data on the device."
        )
