"""COMP005: torch.compile is called on every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import CompiledRegions, Machine, Steps
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class CompiledInStep(Rule):
    """
    torch.compile is called inside the step

    ## What it finds
    A line of the program that calls `torch.compile` (or a decorator that does) on several steps,
    or a function that makes and compiles a function on each call. Silent: a compilation on first
    use, which happens once.

    ## Why it costs
    Each call makes a new wrapper and looks for what was compiled before: about a millisecond on the
    host. Where what is compiled is new as well (a new model, a closure with new values), it is
    compiled anew, until the compiler's limit is reached and everything runs eagerly.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        compiled = torch.compile(model, backend="eager")
        compiled(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="eager")

    def step():
        optimizer.zero_grad()
        compiled(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    ```

    ## When to ignore
    Each step trains a new model on purpose.

    ## Sources
    PyTorch documentation of ``torch.compile``. The price is the measured time of the calls
    themselves; what runs afterwards is not in it. The number of steps is ours.
    """

    code = "COMP005"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(
        3, "Steps that must have called it: models of several stages compile once each."
    )
    share: float = knob(0.25, "Share of the steps of these passes that must have called it.")

    def detect(self, regions: CompiledRegions, steps: Steps, machine: Machine) -> Iterator[Finding]:
        taken = len(steps.quiet) + len(steps.anomaly_off)
        for each in regions.in_steps:
            if each.made_on < max(self.least, self.share * taken):
                continue
            yield Finding(
                each.site,
                f"`{each.what or 'a function'}` is given to torch.compile on "
                f"{amounts.count(each.made_on, 'step')}",
                lost_us_per_step=each.us,
                basis="measured",
                seen_on=machine.device,
                facts=(("time of a call", amounts.duration(each.us)),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Compile once, before the loop, and call what that returns; a function that is defined "
            "in the step takes what changes as arguments."
        )
