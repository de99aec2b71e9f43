"""OPT006: gradients are clipped when there is nothing to clip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Machine
from auditor.evidence.recorded.misplaced_clipping import MisplacedClipping
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class Hints:
    """Whether the line runs before the first backward rather than behind the step."""

    absent: bool


@dataclass(frozen=True)
class ClippingMisplaced(Rule):
    """
    Gradients are clipped before the backward or after the step, where it changes nothing.

    ## What it finds
    ``clip_grad_norm_`` or ``clip_grad_value_`` that runs when its parameters have no gradients yet,
    or only those that the optimizer has stepped with: a backward follows, and the optimizer steps
    with what that made. Silent: an infinite bound (it asks for the norm), parameters of another
    optimizer, and a step in which any call clips between backward and step.

    ## Why it costs
    Nothing is clipped, and nothing says so: the norm that it returns is 0 or that of the last step.
    A bad batch moves the weights as far as it would without a bound.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        loss.backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    ```

    ## When to ignore
    The gradients are clipped in another way as well, which this audit does not see.

    ## Sources
    PyTorch documentation of ``torch.nn.utils.clip_grad_norm_``: "Gradients are modified in-place".
    The thresholds are ours.
    """

    code = "OPT006"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    share: float = knob(0.5, "Share of the optimizer's steps from which it is reported.")
    fewest: int = knob(3, "Steps below which nothing is reported.")

    def detect(self, clippings: MisplacedClipping, machine: Machine) -> Iterator[Finding]:
        for line in clippings.usual(self.share, self.fewest):
            why = (
                "no gradient was there yet, and the backward ran behind it"
                if line.absent
                else "the optimizer had stepped with these gradients already, and the next backward "
                "ran behind it"
            )
            yield Finding(
                line.site,
                f"this clips nothing that {line.optimizer} steps with, on {line.n} of "
                f"{line.steps} steps: {why}",
                steps=line.n,
                per_step=line.n / line.steps,
                seen_on=machine.device,
                hints=Hints(line.absent),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        where = "behind the backward" if finding.hints_as(Hints).absent else "before the step"
        return Remedy(
            f"Move it {where}: backward(), then clip, then step(); with a GradScaler "
            "scaler.unscale_(optimizer) comes before the clip."
        )
