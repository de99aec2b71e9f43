"""SYNC010: a tensor is made on the host only to be moved to the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.copies import Copies
from auditor.evidence.source.files import Source, Span
from auditor.model import Finding, Remedy, Severity, Site

from ..copying import ON_DEVICE, CopyRule, made_on_device


@dataclass(frozen=True)
class Hints:
    """The calls that move it, and the function of torch that makes it."""

    moves: tuple[tuple[Site, str, Span | None], ...]
    makes: str  # empty where the line moves something else


@dataclass(frozen=True)
class TensorMadeOnHostThenMoved(CopyRule):
    """A tensor is made on the host and moved to the device, every step."""

    code = "SYNC010"
    severity = Severity.WARNING
    since = "0.1"
    edits = (ON_DEVICE,)
    leads = 4

    def detect(self, copies: Copies, source: Source) -> Iterator[Finding]:
        for place in self.usual(copies.sites("made on the host", blocking=True)):
            message = (
                f"a tensor of {place.amount} is made on the host and moved to the device on "
                f"{place.pattern}: {copies.host_waits}"
            )
            hints = Hints(place.moves, source.makes_at(place.site))
            yield self.report(copies, place, place.site, message, hints=hints)

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Make it where it is used: pass device= to the function that makes it. Random numbers "
            "then come from the "
            "device's generator and differ."
        )
        hints = finding.hints_as(Hints)
        return Remedy(text, tuple(made_on_device(hints.moves, hints.makes)))
