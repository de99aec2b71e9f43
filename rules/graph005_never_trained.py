"""GRAPH005: parameters that the optimizer holds and never changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Machine, ParamsWithoutGrad
from auditor.evidence.recorded.params_without_grad import Stepped
from auditor.model import Finding, Remedy, Severity, Site
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
    """
    Parameters of the optimizer never change.

    ## What it finds
    Trainable parameters that an optimizer holds and that had no gradient in any of its steps; and
    parameter groups whose rate was zero on all of them. The line is the one that calls the module
    that holds them, where it runs, else that of the optimizer's step. A parameter that is used now and then is
    silent, as are frozen ones (``requires_grad=False``) and gradients that are zero.

    ## Why it costs
    A layer that should learn stays at its random start, and the loss only says so by being worse
    than it could be. Most often the graph is cut on the way, or the layer is never called.

    ## Example
    ```python
    import torch

    body, head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)

    def step():
        optimizer.zero_grad()
        head(body(torch.ones(4, 8)).detach()).square().mean().backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    body, head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)

    def step():
        optimizer.zero_grad()
        head(body(torch.ones(4, 8))).square().mean().backward()
        optimizer.step()
    ```

    ## When to ignore
    The part is trained in another phase, or is chosen so seldom (an expert, a rare task) that the
    audited steps missed it.

    ## Sources
    PyTorch documentation of ``Optimizer.step``: parameters whose ``grad`` is None are skipped. The
    number of steps is ours.
    """

    code = "GRAPH005"
    severity = Severity.WARNING
    since = "0.1"

    fewest: int = knob(
        8,
        "Steps that the optimizer must have taken in the diagnostic pass before anything is "
        "reported.",
    )

    def detect(self, fed: ParamsWithoutGrad, machine: Machine) -> Iterator[Finding]:
        for stepped in fed.long_enough(self.fewest):
            if stepped.n:
                site = stepped.called_at or stepped.site
                yield _finding(stepped, site, machine, "unfed", _unfed(stepped))
            for group, parameters in stepped.still:
                said = (
                    f"{stepped.optimizer} stepped its group {group} ({parameters} parameters) with "
                    "a rate of 0"
                )
                said = f"{said} on all of {stepped.steps} steps"
                yield _finding(stepped, stepped.site, machine, "still", said)

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(REMEDIES[finding.hints_as(Hints).kind])


def _unfed(stepped: Stepped) -> str:
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


def _finding(
    stepped: Stepped, site: Site | None, machine: Machine, kind: str, said: str
) -> Finding:
    facts = (
        tuple((each.name, f"shape {list(each.shape)}") for each in stepped.unfed)
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
