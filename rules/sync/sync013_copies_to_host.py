"""SYNC013: a large share of the step is spent copying its results to the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.trace.steps import TraceSteps
from auditor.model import Finding, Remedy, Severity

from ..transfers import TransferRule


@dataclass(frozen=True)
class StepBoundByCopiesToHost(TransferRule):
    """The device waits for copies to the host."""

    code = "SYNC013"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, steps: TraceSteps) -> Iterator[Finding]:
        yield from self.bound(steps, "to_host", "to the host")

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Reduce on the device and copy the result, or copy every so many steps; what must go "
            "to the host goes into pinned "
            "memory with non_blocking=True, on a side stream while the next kernels run."
        )
