"""OPT002: gradients are filled with zeros instead of being dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.grouping import by_line
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.recorded.timed_calls import CallingLine
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import ANY, Permit
from auditor.recordings.schema import ZeroGradRow
from auditor.rule import Rule, knob

FILLS = "zero_grad(set_to_none=False) fills every gradient with zeros"
BY_HAND = "zero_() fills gradients with zeros that the next backward adds to,"


@dataclass(frozen=True)
class Hints:
    """The call on the line that is given ``set_to_none``, and as what."""

    call: str
    asked: CallArgument


@dataclass(frozen=True)
class GradientsFilledWithZeros(Rule):
    """Gradients are filled with zeros instead of being dropped."""

    code = "OPT002"
    severity = Severity.NOTE
    since = "0.1"
    edits = (
        Permit("drop_keyword", (ANY,), "set_to_none"),
        Permit("set_keyword", (ANY, ".zero_grad"), "set_to_none", "True", elsewhere=True),
    )

    share: float = knob(0.5, "Share of the diagnosed steps from which it is reported.")

    def detect(
        self,
        cleared: Rows[ZeroGradRow],
        steps: Steps,
        machine: Machine,
        source: Source,
        configs: Configs,
    ) -> Iterator[Finding]:
        watched = len(steps.loud)
        filled = (row for row in cleared if not row.set_to_none and row.step < watched)
        for calls in by_line(filled):
            zeroing = CallingLine(calls[0].site, tuple(calls), watched)
            if not zeroing.pattern.usual(self.share):
                continue
            said = BY_HAND if any(call.owner == "Tensor" for call in calls) else FILLS
            asked = given(source, configs, zeroing.site, "zero_grad", "set_to_none", ran=False)
            yield Finding(
                zeroing.site,
                f"{said} on {zeroing.pattern}" + (f": {asked.said}" if asked.written else ""),
                steps=len(zeroing.pattern.seen),
                per_step=zeroing.per_step,
                seen_on=machine.device,
                facts=(
                    (
                        "host time",
                        f"{amounts.duration(zeroing.us_per_step)} per step (diagnostic pass)",
                    ),
                ),
                hints=Hints(
                    call=source.call_with_keyword(zeroing.site, "set_to_none"), asked=asked
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        text = "Drop set_to_none: the default sets gradients to None."
        hints = finding.hints_as(Hints)
        call, asked = hints.call, hints.asked
        if not call and not asked.written:
            return Remedy("Set gradients to None, as zero_grad() does by default.")
        if finding.site is None:
            return Remedy(text)
        reason = (
            "a parameter that gets no gradient is skipped, while a zero gradient still moves it "
            "under momentum or weight decay; "
            "and code that reads p.grad may meet None"
        )
        if asked.written:  # dropping it would take the choice away from who decides
            text = "Let set_to_none be True, which is the default."
            return Remedy(
                text + asked.advice, asked.edits("True", reason=reason), refused=asked.refused
            )
        return Remedy(
            text, (Edit(finding.site, "drop_keyword", call, "set_to_none", reason=reason),)
        )
