"""OPT004: clipping gradients reads their norm on the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from auditor.evidence.recorded.reads import Place, Reads
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import ANY, Permit

from ..reading import ReadingRule


@dataclass(frozen=True)
class Hints:
    """The call on the line that is given ``error_if_nonfinite``, and as what."""

    call: str
    asked: CallArgument


@dataclass(frozen=True)
class ClipReadsGradientNorm(ReadingRule):
    """Gradient clipping reads the norm on the host."""

    code = "OPT004"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    edits = (
        Permit("drop_keyword", (ANY,), "error_if_nonfinite"),
        Permit("set_keyword", (ANY,), "error_if_nonfinite", "False", elsewhere=True),
    )
    leads = 4

    def detect(self, reads: Reads, source: Source, configs: Configs) -> Iterator[Finding]:
        for finding in self.report(reads, reads.clips(), self._sentence):
            call = (
                ""
                if finding.site is None
                else source.call_with_keyword(finding.site, "error_if_nonfinite")
            )
            asked = given(source, configs, finding.site, call, "error_if_nonfinite", ran=True)
            decided = f": {asked.said}" if asked.written else ""
            yield replace(finding, message=finding.message + decided, hints=Hints(call, asked))

    def _sentence(self, place: Place) -> str:
        return f"clipping reads the gradients' norm: {place.waits('this')}"

    def remedy(self, finding: Finding) -> Remedy | None:
        look = "look at the norms that it returns every so many steps."
        hints = finding.hints_as(Hints)
        call, asked = hints.call, hints.asked
        if (
            finding.site is None or not call
        ):  # a library clips on the line's behalf, and asks for the check
            return Remedy(
                "Have it clip without error_if_nonfinite=True (pass False where the call takes "
                f"it), and {look}"
            )
        text = f"Drop error_if_nonfinite=True and {look}"
        reason = "a non-finite norm then no longer raises an error"
        if asked.written:
            text = f"Let error_if_nonfinite be False and {look}"
            return Remedy(
                text + asked.advice, asked.edits("False", reason=reason), refused=asked.refused
            )
        return Remedy(
            text,
            (
                Edit(
                    finding.site,
                    "drop_keyword",
                    call=call,
                    keyword="error_if_nonfinite",
                    reason=reason,
                ),
            ),
        )
