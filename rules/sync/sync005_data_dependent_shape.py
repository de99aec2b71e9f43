"""SYNC005: results whose size depends on values: ``nonzero``, boolean masks, ``unique``,
``bincount``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.reads import Place, Reads
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.model import Finding, Remedy, Severity

from ..reading import ReadingRule
from .waiting import waits_in_trace


@dataclass(frozen=True)
class DataDependentShape(ReadingRule):
    """A result's size depends on values on the device."""

    code = "SYNC005"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    leads = 3

    def detect(self, reads: Reads) -> Iterator[Finding]:
        return self.report(reads, reads.places("shape"), self._sentence)

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("shape"),
            lambda place: f"the size of what `{place.operator}` gives depends on values",
        )

    def _sentence(self, place: Place) -> str:
        return f"the size of `{place.text}` depends on values{place.through}: {place.waits('it')}"

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Keep the size fixed: multiply by the mask, use torch.where or masked_fill, give "
            "output_size or minlength, "
            "or work on the indices that topk returns."
        )
        return Remedy(self.advice(finding, text))
