"""What the rules about lines that read tensors have in common: how often is often, and how a line is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from auditor.evidence import Reads
from auditor.evidence.reads import Place
from auditor.model import Finding, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class ReadingRule(Rule):
    """Base of the rules about reads; no rule itself."""

    share: float = knob(0.5, "Share of the loud steps from which a line that does it is a warning.")
    rare: float = knob(0.1, "Share of the loud steps below which it is not reported.")
    interval: int = knob(10, "At a constant distance of this many steps or more it is rate-limited and not reported.")
    enough: int = knob(10, "With fewer loud steps only a line that does it on every step is reported.")

    def report(self, reads: Reads, places: Iterable[Place], say: Callable[[Place], str]) -> Iterator[Finding]:
        """A finding for each place that does it often enough; a note where it is not usual, or a library's doing."""
        for place in places:
            weight = place.rhythm.weight(usual=self.share, rare=self.rare, interval=self.interval, enough=self.enough)
            if weight is None:
                continue
            yield Finding(
                place.site,
                say(place),
                steps=len(place.rhythm.seen),
                per_step=place.per_step,
                lost_us_per_step=place.held_us,
                basis="none" if place.held_us is None else "estimated",
                seen_on=reads.device,
                severity=Severity.NOTE if weight == "sometimes" or place.library else None,
                facts=place.facts,
            )
