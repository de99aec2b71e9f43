"""SYNC003: ``.cpu()``, ``.numpy()``, ``.tolist()``, ``.to("cpu")``, ``print(t)`` in the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.reads import Place, Reads
from auditor.evidence.source.files import Source
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.model import Finding, Remedy, Severity

from ..reading import LOGS_OR_SUMS, ReadingRule
from .waiting import waits_in_trace


@dataclass(frozen=True)
class CopyToHostEveryStep(ReadingRule):
    """A tensor is copied to the host in the step."""

    code = "SYNC003"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    edits = LOGS_OR_SUMS
    leads = 2

    def detect(self, reads: Reads, source: Source) -> Iterator[Finding]:
        return self.less_often(
            self.report(reads, reads.places("transfer"), self._sentence), source, reads
        )

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("copy to host"),
            lambda place: f"`{place.operator}` copies a tensor to the host",
        )

    def _sentence(self, place: Place) -> str:
        return f"`{place.text}` copies a tensor to the host{place.through}: {place.waits('it')}"

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Collect on the device and copy once every so many steps; or copy into pinned memory "
            "with non_blocking=True "
            "and read it a step later."
        )
        return self.read_less(finding, text)
