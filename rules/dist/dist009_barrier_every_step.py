"""DIST009: the ranks wait for one another on each step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from .collectives import Collectives
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import Permit
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class BarrierEveryStep(Rule):
    """All ranks wait for one another on each step, by a call of barrier"""

    code = "DIST009"
    severity = Severity.WARNING
    since = "0.1"
    edits = (Permit("drop_statement", ("torch.distributed.barrier", ".barrier", "barrier")),)

    share: float = knob(0.5, "Share of the steps from which it is reported.")
    ranks: int = knob(2, "Ranks below which nobody waits.")

    def detect(
        self, collectives: Collectives, machine: Machine, source: Source
    ) -> Iterator[Finding]:
        for each in collectives.each:
            if each.what != "barrier" or each.ranks < self.ranks:
                continue
            if not each.pattern.usual(self.share):
                continue
            yield Finding(
                each.site,
                f"{each.ranks} ranks wait for one another on {each.pattern}",
                steps=len(each.pattern.seen),
                per_step=each.per_step,
                seen_on=machine.device,
                facts=()
                if each.us is None
                else (("host time inside, instrumented", f"{amounts.duration(each.us)} per step"),),
                hints=Alone(source.stands_alone(each.site, "barrier")),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Remove it: collectives wait for all ranks by themselves. To time a step, use "
            "torch.cuda.Event or this audit."
        )
        if finding.site is None or not finding.hints_as(Alone).is_so:
            return Remedy(text)
        reason = "what happens between the ranks outside of torch (files) may rely on it"
        return Remedy(text, (Edit(finding.site, "drop_statement", call="barrier", reason=reason),))


@dataclass(frozen=True)
class Alone:
    """Whether the call is a statement by itself."""

    is_so: bool
