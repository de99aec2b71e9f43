"""COMP002: a function that is compiled again and again for one guard."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Compiles, Machine, Steps
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .recompiling import EDITS, Hints, as_long_as, because, hints, named, remedy


@dataclass(frozen=True)
class RecompilesAgainAndAgain(Rule):
    """
    A function is compiled again and again, since one value changes

    ## What it finds
    One guard of one compiled function that failed on several steps, each time with a compilation:
    a length that varies with `dynamic=False`, a Python number or text that changes on each step, an
    attribute that counts. Named are the guard and the line that reads its value. Silent: a second
    compilation for a second value (the compiler then treats a length or a number as one that
    varies), a model that is compiled for training and once more for evaluation, and functions that
    reached the limit of recompilations, which COMP003 tells of.

    ## Why it costs
    A compilation takes as long as hundreds of steps, and each one adds to what is asked before the
    compiled code may run. After the limit (8) the function runs without the compiler.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = {"phase": "0"}

    @torch.compile(backend="eager")
    def loss_of(x):
        scale = 2.0 if state["phase"] == "end" else 1.0
        return (model(x) * scale).square().mean()

    taken = 0

    def step():
        global taken
        taken += 1
        state["phase"] = str(taken // 2 % 5)
        optimizer.zero_grad()
        loss_of(torch.randn(8, 16)).backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = {"phase": "0"}

    @torch.compile(backend="eager")
    def loss_of(x, scale):
        return (model(x) * scale).square().mean()

    taken = 0

    def step():
        global taken
        taken += 1
        state["phase"] = str(taken // 2 % 5)
        optimizer.zero_grad()
        scale = torch.tensor(2.0 if state["phase"] == "end" else 1.0)
        loss_of(torch.randn(8, 16), scale).backward()
        optimizer.step()
    ```

    ## When to ignore
    The values are few, and all of them come in the first steps.

    ## Sources
    PyTorch documentation: dynamic shapes, and recompilations. The number of steps is ours. The time
    is that of these compilations by the clock, all together, and has no price per step: the limit
    ends them.
    """

    code = "COMP002"
    severity = Severity.WARNING
    since = "0.1"
    edits = EDITS

    least: int = knob(
        2, "Steps on which one guard must have failed: a first time teaches the compiler."
    )

    def detect(self, compiles: Compiles, steps: Steps, machine: Machine) -> Iterator[Finding]:
        reached = {each.function for each in compiles.recompiled if each.limit}
        for each in compiles.recompiled:
            if each.steps < self.least or each.function in reached:
                continue
            as_long = as_long_as(each.us, steps)
            yield Finding(
                each.site,
                f"{named(each)} was compiled anew on {amounts.count(each.steps, 'step')}, since "
                f"{because(each)}: {amounts.duration(each.us)} of compilation"
                + (f", {as_long}" if as_long else ""),
                seen_on=machine.device,
                facts=(
                    ("guard that failed", each.guard),
                    ("compilations for it", str(each.n)),
                    ("time of these", amounts.duration(each.us)),
                ),
                hints=hints(each, compiles),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return remedy(finding.hints_as(Hints))
