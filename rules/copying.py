"""What the rules about copies to the device have in common: every step, seen on a GPU's path, reported by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from auditor.evidence import Copies
from auditor.evidence.copies import CopySite
from auditor.model import Edit, Finding, Site
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class CopyRule(Rule):
    """Base of the rules about copies; no rule itself."""

    rehearsed = True
    cause = "copy to the device"

    share: float = knob(0.5, "Share of the loud steps from which a copy is reported.")

    def usual(self, sites: Iterable[CopySite], *, by_libraries: bool = False) -> Iterator[CopySite]:
        """Lines that copy on most steps; by themselves, since what a library copies for them is not theirs to change."""
        return (place for place in sites if place.rhythm.usual(self.share) and (by_libraries or not place.library))

    def without_waiting(self, finding: Finding) -> Iterator[Edit]:
        """``non_blocking=True`` for each call that moves a batch in pinned memory."""
        reason = "the device runs the copy before the kernels that need it; the batch's pinned memory is not written again"
        for site, call, span in finding.hints.get("moves", ()):
            yield Edit(site, "set_keyword", call, "non_blocking", "True", safe=True, reason=reason, span=span)

    def report(self, copies: Copies, place: CopySite, site: Site | None, message: str, **more: Any) -> Finding:
        """A finding about one line."""
        return Finding(
            site,
            message,
            steps=len(place.rhythm.seen),
            per_step=place.per_step,
            seen_on=copies.device,
            facts=place.facts,
            **more,
        )
