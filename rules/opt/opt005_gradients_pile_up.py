"""OPT005: nothing clears the gradients between the optimizer's steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source, name_of
from auditor.evidence.table import Rows
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import Permit
from auditor.rule import Rule, knob

from .rows import UnclearedRow


def _clearing(tree: ast.Module, call: ast.Call | None) -> set[str]:
    """``optimizer.zero_grad()`` of each ``optimizer.step()`` of a file."""
    steps = (
        node.func
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and name_of(node.func) == "step"
    )
    return {
        f"{ast.unparse(each.value)}.zero_grad()"
        for each in steps
        if isinstance(each, ast.Attribute)
    }


@dataclass(frozen=True)
class Hints:
    """``zero_grad()`` before the backward, where it can be written there."""

    edit: Edit | None


@dataclass(frozen=True)
class GradientsPileUp(Rule):
    """Gradients are never cleared: every step adds to those of all steps before."""

    code = "OPT005"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    edits = (Permit("insert_before", value=r"[\w.]+\.zero_grad\(\)", made=_clearing),)

    fewest: int = knob(
        3, "Steps on which gradients must have piled up before anything is reported."
    )

    def detect(
        self, uncleared: Rows[UnclearedRow], machine: Machine, source: Source
    ) -> Iterator[Finding]:
        for piling in uncleared:
            # of the first step that was watched nobody knows
            if piling.steps <= self.fewest or piling.piled != piling.steps - 1:
                continue
            backward = piling.site_of(piling.backward_at)
            yield Finding(
                piling.site,
                f"{piling.optimizer} steps with the gradients of all earlier steps added up: "
                "nothing cleared them on any of "
                f"{piling.piled} steps",
                steps=piling.piled,
                per_step=1.0,
                seen_on=machine.device,
                facts=(("added up by the backward at", str(backward)),) if backward else (),
                hints=Hints(_edit(piling, source)),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        edit = finding.hints_as(Hints).edit
        text = (
            "Call optimizer.zero_grad() once for each step(): before the backward, or right after "
            "the step."
        )
        return Remedy(text, () if edit is None else (edit,))


def _edit(piling: UnclearedRow, source: Source) -> Edit | None:
    """``zero_grad()`` before the backward, where that is in the function that steps and the line
    names the optimizer.
    """
    site, backward = piling.site, piling.site_of(piling.backward_at)
    if (
        site is None
        or backward is None
        or (site.file, site.function) != (backward.file, backward.function)
    ):
        return None
    stepped = [
        call.func.value
        for call in source.calls_at(site)
        if name_of(call.func) == "step" and isinstance(call.func, ast.Attribute)
    ]
    if len(stepped) != 1 or not _names_it(stepped[0], source, piling.optimizer):
        return None
    reason = "the weights change in another way from now on: by the gradient of each batch alone"
    return Edit(
        backward, "insert_before", value=f"{ast.unparse(stepped[0])}.zero_grad()", reason=reason
    )


def _names_it(stepped: ast.expr, source: Source, optimizer: str) -> bool:
    """False of a GradScaler's ``step``, and of what was not made as an optimizer of this class
    under this name.
    """
    name = name_of(stepped)
    made = (
        node for file in source.texts for node in source.nodes(file) if isinstance(node, ast.Assign)
    )
    named = (node.value for node in made if any(name_of(target) == name for target in node.targets))
    return any(isinstance(value, ast.Call) and name_of(value.func) == optimizer for value in named)
