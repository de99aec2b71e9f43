"""GRAPH005: parameters that the optimizer holds and never changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity, Site
from auditor.recordings.schema import FedRow
from auditor.rule import Rule, knob

NAMED = 3
"""Parameters that the message names; the rest are counted."""

REMEDIES = {
    "unfed": "Find where the graph is cut: a detach(), .data, no_grad() "
    "or argmax on the way to the loss, or a module that the forward "
    "never calls. If it is meant, set requires_grad_(False) and leave the parameter out of the "
    "optimizer.",
    "still": "Look at the schedule: it ended, or the group was made "
    "with lr=0. If it is meant, freeze the parameters: their gradients "
    "are computed for nothing.",
}


@dataclass(frozen=True)
class Hints:
    """Why they never change: a key of ``REMEDIES``."""

    kind: str


@dataclass(frozen=True)
class ParametersNeverTrained(Rule):
    """Parameters of the optimizer never change."""

    code = "GRAPH005"
    severity = Severity.WARNING
    since = "0.1"

    fewest: int = knob(
        8,
        "Steps that the optimizer must have taken in the diagnostic pass before anything is "
        "reported.",
    )

    def detect(self, fed: Rows[FedRow], machine: Machine) -> Iterator[Finding]:
        for stepped in fed:
            if stepped.steps < self.fewest:
                continue
            if stepped.n:
                site = stepped.site_of(stepped.called_at) or stepped.site
                yield _finding(stepped, site, machine, "unfed", _unfed(stepped))
            for each in stepped.still:
                said = (
                    f"{stepped.optimizer} stepped its group {each.group} ({each.parameters} "
                    f"parameters) with a rate of 0 on all of {stepped.steps} steps"
                )
                yield _finding(stepped, stepped.site, machine, "still", said)

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(REMEDIES[finding.hints_as(Hints).kind])


def _unfed(stepped: FedRow) -> str:
    names = ", ".join(each.name for each in stepped.unfed[:NAMED])
    more = f" and {stepped.n - NAMED} more" if stepped.n > NAMED else ""
    ran = (
        f"; {stepped.called or 'the module that holds them'} runs here, and no gradient comes back "
        "to it"
        if stepped.called_at is not None
        else ""
    )
    return (
        f"{stepped.n} of {stepped.parameters} parameters of {stepped.optimizer} had no gradient in "
        f"any of {stepped.steps} steps: {names}{more}{ran}"
    )


def _finding(stepped: FedRow, site: Site | None, machine: Machine, kind: str, said: str) -> Finding:
    facts = (
        tuple((each.name, f"shape {each.shape}") for each in stepped.unfed)
        if kind == "unfed"
        else ()
    )
    return Finding(
        site,
        said,
        steps=stepped.steps,
        per_step=1.0,
        seen_on=machine.device,
        facts=facts,
        hints=Hints(kind),
    )
