"""SYNC002: Python asks a tensor for its truth: ``if t``, ``while t``, ``assert t``, ``bool(t)``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.reads import Place, Reads
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.model import Finding, Remedy, Severity

from ..reading import ReadingRule
from .waiting import waits_in_trace


@dataclass(frozen=True)
class BranchOnTensor(ReadingRule):
    """Python branches on a tensor in the step."""

    code = "SYNC002"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    def detect(self, reads: Reads) -> Iterator[Finding]:
        return self.report(reads, reads.places("branch"), self._sentence)

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("branch"),
            lambda place: f"Python branches on a tensor (`{place.operator}`)",
        )

    def _sentence(self, place: Place) -> str:
        return f"Python branches on the tensor `{place.text}`: {place.waits('this')}"

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Keep the decision on the device: torch.where, torch.minimum or a multiplication by "
            "the condition; "
            "for a guard, collect the condition in a tensor and look at it every so many steps."
        )
