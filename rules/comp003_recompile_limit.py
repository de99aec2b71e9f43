"""COMP003: a function that was compiled too often and runs without the compiler since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Compiles, Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule

from .recompiling import EDITS, Hints, because, hints, named, remedy


@dataclass(frozen=True)
class RecompileLimitReached(Rule):
    """
    A function was compiled too often and runs eagerly since

    ## What it finds
    A compiled function that reached `torch._dynamo.config.recompile_limit` (8): the compiler gives
    it up without an error, and from then on it runs as if it had never been compiled. Named are the
    guard that failed and the line that reads its value.

    ## Why it costs
    All that compilation should have bought is lost for the rest of the run, after the time of eight
    compilations.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = {"tag": "0"}

    @torch.compile(backend="eager")
    def loss_of(x):
        scale = 2.0 if state["tag"] == "end" else 1.0
        return (model(x) * scale).square().mean()

    taken = 0

    def step():
        global taken
        taken += 1
        state["tag"] = str(taken)
        optimizer.zero_grad()
        loss_of(torch.randn(8, 16)).backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend="eager")
    def loss_of(x, scale):
        return (model(x) * scale).square().mean()

    def step():
        optimizer.zero_grad()
        loss_of(torch.randn(8, 16), torch.tensor(1.0)).backward()
        optimizer.step()
    ```

    ## When to ignore
    Never: a function that need not be compiled is better left uncompiled.

    ## Sources
    PyTorch documentation: recompilations and `recompile_limit` (`cache_size_limit` before 2.7).
    """

    code = "COMP003"
    severity = Severity.WARNING
    since = "0.1"
    edits = EDITS

    def detect(self, compiles: Compiles, machine: Machine) -> Iterator[Finding]:
        for each in compiles.recompiled:
            if not each.limit:
                continue
            yield Finding(
                each.site,
                f"{named(each)} was compiled so often that torch.compile gave it up and it runs "
                f"eagerly since: {because(each)}",
                seen_on=machine.device,
                facts=(
                    ("guard that failed", each.guard),
                    ("times that it failed", str(each.n)),
                    ("time of compilations", amounts.duration(each.us)),
                ),
                hints=hints(each, compiles),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return remedy(finding.hints_as(Hints))
