"""WASTE001: gradients that are computed and cleared before any optimizer reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.thrown_work import Thrown, ThrownWork
from auditor.model import Finding, Remedy, Severity
from auditor.rule import knob

from .wasting import WasteRule, worth

NAMED = 3
"""Parameters that the message names; the rest are counted."""

REMEDIES = {
    "gradient": "Keep the backward out of them: requires_grad_(False) on their module before the "
    "forward and requires_grad_(True) after the backward, or "
    "backward(inputs=list(other.parameters())).",
    "detach": "End the graph here: give the call x.detach() instead of x, or make x under "
    "torch.no_grad() where nothing else needs its graph.",
}


@dataclass(frozen=True)
class Hints:
    """Which way: a key of ``REMEDIES``."""

    kind: str


@dataclass(frozen=True)
class GradientsClearedUnread(WasteRule):
    """Gradients are computed that no optimizer reads."""

    code = "WASTE001"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.01, "Share of the step's work from which it is reported.")

    def detect(self, thrown: ThrownWork, machine: Machine) -> Iterator[Finding]:
        for each in thrown.of("gradient", "detach"):
            if each.share >= self.share:
                yield self.report(thrown, each, machine, _said(each), hints=Hints(each.what))

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(REMEDIES[finding.hints_as(Hints).kind])


def _said(each: Thrown) -> str:
    names = ", ".join(each.names[:NAMED])
    more = f" and {each.n - NAMED} more" if each.n > NAMED else ""
    whose = f"{each.n} parameters of {each.owner} ({names}{more})"
    if each.what == "detach":
        return (
            f"through this call the backward at {each.other} goes on into {whose}, whose gradients "
            f"are cleared before any optimizer reads them: {worth(each)}"
        )
    return (
        f"the gradients that this backward computes for {whose} are cleared before any optimizer "
        f"reads them: {worth(each)}"
    )
