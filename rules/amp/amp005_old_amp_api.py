"""AMP005: mixed precision by the classes of torch.cuda.amp, which are deprecated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.amp import Amp
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import Permit
from auditor.rule import Rule

NEW = {
    "old_autocast": ("autocast", 'torch.amp.autocast("cuda", ...)'),
    "old_scaler": ("GradScaler", 'torch.amp.GradScaler("cuda", ...)'),
}
"""Class and what to write instead, by kind of event."""


@dataclass(frozen=True)
class Hints:
    """What is written on the line, and what to write instead."""

    new: str
    call: str  # empty where the line does not call the class by its name


@dataclass(frozen=True)
class OldMixedPrecisionApi(Rule):
    """Mixed precision is switched on by a deprecated class."""

    code = "AMP005"
    severity = Severity.NOTE
    since = "0.1"
    rehearsed = True
    edits = (
        Permit(
            "modernize_amp", tuple(f"torch.cuda.amp.{name}" for name, _ in NEW.values()), safe=True
        ),
    )

    def detect(self, amp: Amp, machine: Machine, source: Source) -> Iterator[Finding]:
        for kind, (name, new) in NEW.items():
            sites = [place.site for place in amp.places(kind)]
            if kind == "old_scaler":  # it was made before the step
                sites = [source.first_call(name) or site for site in sites[:1]]
            for site in sites:
                said = f"torch.cuda.amp.{name} is deprecated: it is {new} now"
                hints = Hints(new, source.called(site, name))
                yield Finding(site, said, steps=amp.steps, seen_on=machine.device, hints=hints)

    def remedy(self, finding: Finding) -> Remedy | None:
        hints = finding.hints_as(Hints)
        text = (
            f"Write {hints.new}, with the same arguments behind the device, and import "
            "it from torch.amp."
        )
        if finding.site is None or not hints.call:
            return Remedy(text)
        reason = "the old class is the new one with its device set to cuda"
        return Remedy(
            text, (Edit(finding.site, "modernize_amp", hints.call, safe=True, reason=reason),)
        )
