"""GRAPH006: tensors that get gradients, and that no optimizer holds or no module registers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.grouping import together
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.recordings.schema import FedRow
from auditor.rule import Rule, knob

from .rows import EvalRow, StrayRow
from .unused_graphs import for_nobody

NAMED = 3
"""Tensors that the message names; the rest are counted."""

TEACHING = 3
"""Calls from which GRAPH003 speaks of a module in evaluation mode."""

REMEDIES = {
    "parameters": "Give them to the optimizer: build it after the whole "
    "model is built, from model.parameters(), and keep layers in "
    "nn.ModuleList, not in a list. If they are meant to stay as they are, requires_grad_(False): "
    "their gradients are computed "
    "and kept for nothing.",
    "hidden": "Keep them in nn.ModuleList (of a dictionary: nn.ModuleDict): then parameters(), "
    "state_dict() and .to(device) see them.",
    "tensor": "Make it an nn.Parameter of a module and give it to the "
    "optimizer; or drop requires_grad if it is a constant.",
    "unregistered": "Make it an nn.Parameter of a module, or save it and move "
    "it by hand beside the model.",
}


@dataclass(frozen=True)
class Hints:
    """What was left out: a key of ``REMEDIES``."""

    kind: str


@dataclass(frozen=True)
class TrainableTensorLeftOut(Rule):
    """A tensor gets gradients and no optimizer holds it."""

    code = "GRAPH006"
    severity = Severity.WARNING
    since = "0.1"

    fewest: int = knob(
        8, "Steps of the diagnostic pass that must have given the tensor a gradient."
    )

    def detect(
        self,
        strays: Rows[StrayRow],
        fed: Rows[FedRow],
        evaluations: Rows[EvalRow],
        machine: Machine,
    ) -> Iterator[Finding]:
        if not len(fed):  # gradients are looked at for their own sake
            return
        # a teacher's: GRAPH003 names the line that records their graph
        taught = {
            name for place in for_nobody(evaluations, strays, TEACHING) for name in place.parameters
        }
        often = [each for each in strays if each.fed >= self.fewest]
        unchanged = [each for each in often if not each.optimized and each.changed is False]
        forgotten = [each for each in unchanged if each.registered and each.name not in taught]
        for found in together(forgotten, lambda each: str(each.made or each.site)):
            kind = "parameters" if found[0].made is None else "hidden"
            yield _finding(found, kind, machine)
        for each in unchanged:
            if not each.registered and not each.known:
                yield _finding([each], "tensor", machine)
        for each in often:
            if each.optimized and not each.registered and each.beside:
                yield _finding([each], "unregistered", machine)

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(REMEDIES[finding.hints_as(Hints).kind])


def _finding(strays: Sequence[StrayRow], kind: str, machine: Machine) -> Finding:
    first, held = strays[0], sum(each.grad_bytes for each in strays)
    return Finding(
        first.made or first.site,
        _said(strays, kind),
        steps=first.fed,
        per_step=1.0,
        seen_on=machine.device,
        severity=Severity.NOTE if kind == "unregistered" else None,
        facts=(
            ("gradients held", amounts.size(held)),
            *((each.name or "a tensor", f"shape {each.shape}") for each in strays[:20]),
        ),
        hints=Hints(kind),
    )


def _said(strays: Sequence[StrayRow], kind: str) -> str:
    name = strays[0].name or f"a tensor of shape {strays[0].shape}"
    if kind in ("parameters", "hidden"):
        names = ", ".join(each.name for each in strays[:NAMED])
        more = f" and {len(strays) - NAMED} more" if len(strays) > NAMED else ""
        where = (
            ", since parameters() does not see modules in a plain list, tuple or dictionary"
            if kind == "hidden"
            else ""
        )
        return (
            f"{len(strays)} parameters get a gradient on {strays[0].fed} steps, are in no "
            f"optimizer and never change{where}: {names}{more}"
        )
    if kind == "tensor":
        return (
            f"{name} gets a gradient on {strays[0].fed} steps, is in no optimizer and no module, "
            "and never changes"
        )
    return (
        f"{name} is trained but in no module: state_dict() does not save it and .to(device) does "
        "not move it"
    )
