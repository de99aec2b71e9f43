"""SYNC001: ``.item()``, ``float(t)``, ``int(t)``, ``torch.equal`` in the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.reads import Place, Reads
from auditor.evidence.source.files import Source
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.model import Finding, Remedy, Severity

from ..reading import LOGS_OR_SUMS, ReadHints, ReadingRule
from .waiting import waits_in_trace

CHECKS = ("__init__", "_validate_sample")
"""Functions of torch/distributions/distribution.py that read only to check what they were given."""


@dataclass(frozen=True)
class ScalarReadEveryStep(ReadingRule):
    """A tensor becomes a Python number in the step."""

    code = "SYNC001"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    edits = LOGS_OR_SUMS
    leads = 1

    def detect(self, reads: Reads, source: Source) -> Iterator[Finding]:
        return self.less_often(
            self.report(reads, reads.places("scalar"), self._sentence), source, reads
        )

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("scalar"),
            lambda place: f"`{place.operator}` turns a tensor into a Python number",
        )

    def _sentence(self, place: Place) -> str:
        return (
            f"`{place.text}` turns a tensor into a Python number{place.through}: "
            f"{place.waits('it')}"
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        library = finding.hints_as(ReadHints).library
        if any(library.endswith(f"distribution.py:{name}") for name in CHECKS):
            return Remedy(
                "The distribution checks its arguments and samples, and the check is what reads: "
                "make it with "
                "validate_args=False, or call "
                "torch.distributions.Distribution.set_default_validate_args(False) once at the "
                "start."
            )
        text = (
            "Keep the value on the device: add loss.detach() to a running tensor, or collect "
            "several and read them with one "
            "torch.stack(...).tolist(), and read only every so many steps."
        )
        return self.read_less(finding, text)
