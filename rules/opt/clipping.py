"""OPT004 and 6: how gradients are clipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.reads import Place, Reads
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.permit import ANY, Permit
from auditor.rule import Rule, knob

from ..reading import ReadingRule
from .rows import ClippingRow


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
        # a library clips on the line's behalf, and asks for the check
        if finding.site is None or not call:
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


@dataclass(frozen=True)
class ClippingHints:
    """Whether the line runs before the first backward rather than behind the step."""

    absent: bool


@dataclass(frozen=True)
class ClippingMisplaced(Rule):
    """Gradients are clipped before the backward or after the step, where it changes nothing."""

    code = "OPT006"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    share: float = knob(0.5, "Share of the optimizer's steps from which it is reported.")
    fewest: int = knob(3, "Steps below which nothing is reported.")

    def detect(self, clippings: Rows[ClippingRow], machine: Machine) -> Iterator[Finding]:
        told: set[Site] = set()
        for line in clippings:
            if line.n < max(self.fewest, self.share * line.steps) or line.site in told:
                continue
            told.add(line.site)  # of a line with several optimizers the first
            why = (
                "no gradient was there yet, and the backward ran behind it"
                if line.absent
                else "the optimizer had stepped with these gradients already, and the next backward "
                "ran behind it"
            )
            yield Finding(
                line.site,
                f"this clips nothing that {line.optimizer} steps with, on {line.n} of "
                f"{line.steps} steps: {why}",
                steps=line.n,
                per_step=line.n / line.steps,
                seen_on=machine.device,
                hints=ClippingHints(line.absent),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        where = (
            "behind the backward" if finding.hints_as(ClippingHints).absent else "before the step"
        )
        return Remedy(
            f"Move it {where}: backward(), then clip, then step(); with a GradScaler "
            "scaler.unscale_(optimizer) comes before the clip."
        )
