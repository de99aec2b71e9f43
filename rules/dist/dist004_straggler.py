"""DIST004: one rank keeps the others waiting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace.ranks import Ranks
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob


@dataclass(frozen=True)
class RankKeepsOthersWaiting(Rule):
    """One rank comes late to the collectives, and the others wait for it."""

    code = "DIST004"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.1,
        "Share of the step that the median rank waits for the late one from which it is reported.",
    )
    severe: float = knob(0.2, "Share from which it is an error.")
    last: float = knob(1 / 3, "Share of the collectives at which the rank must come last.")
    least_steps: int = knob(
        3, "Steps in the traces below which it is a note: one step may be an accident."
    )

    def detect(self, ranks: Ranks) -> Iterator[Finding]:
        if len(ranks.rows) < 2:
            raise NotLooked(
                "one trace cannot tell: give the folder that holds the traces of all ranks"
            )
        if ranks.late is None:
            raise NotLooked("the ranks share no collective that would set their clocks")
        if (
            ranks.waited_share < self.share
            or ranks.last < self.last * ranks.shared
            or ranks.waited_us <= ranks.clocks_us
        ):
            return
        excess = ranks.excess()
        why = f": it spends {amounts.duration(excess[1])} more {excess[0]}" if excess else ""
        yield Finding(
            None,
            f"the other ranks wait {amounts.duration(ranks.waited_us)} of each step, "
            f"{amounts.percent(ranks.waited_share)}, for rank {ranks.late}, "
            f"last at {ranks.last} of {ranks.shared} collectives{why}",
            steps=ranks.steps,
            lost_us_per_step=ranks.waited_us if ranks.steps >= self.least_steps else None,
            basis="estimated" if ranks.steps >= self.least_steps else "none",
            seen_on="trace",
            severity=self._severity(ranks),
            facts=(*ranks.facts, ("clocks set within", amounts.duration(ranks.clocks_us))),
        )

    def _severity(self, ranks: Ranks) -> Severity | None:
        if ranks.steps < self.least_steps:
            return Severity.NOTE
        return Severity.ERROR if ranks.waited_share >= self.severe else None

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Look at the late rank's own findings first: they are what makes it late. Balance the "
            "work where it computes more."
        )
