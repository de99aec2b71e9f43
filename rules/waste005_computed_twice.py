"""WASTE005: the same operators on the same operands, twice in one step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Machine, ThrownWork
from auditor.model import Finding, Remedy, Severity
from auditor.rule import knob

from .wasting import WasteRule, worth


@dataclass(frozen=True)
class ComputedTwice(WasteRule):
    """
    The same thing is computed twice in a step.

    ## What it finds
    A line that runs the operators which another line has run in the same step, on the same tensors,
    unchanged since: ``model(x)`` for the loss and ``model(x)`` again for the accuracy. Silent:
    small operators (an ``exp`` written twice), recomputation in a backward (checkpointing), a
    forward without a graph that is repeated with one on purpose (gradient caching), other random
    numbers (dropout), changed weights, the turns of a loop, and graphs that go back to different
    leaves: the gradient of the input and then the loss, a critic on a detached and an attached
    sample. A note where a backward between the two may have freed the first graph.

    ## Why it costs
    The second result is the first one, for the price of a forward.

    ## Example
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    right = torch.zeros(())

    def step():
        x, y = torch.randn(32, 64), torch.randint(0, 8, (32,))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        right.add_((model(x).argmax(1) == y).sum())
        loss.backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    right = torch.zeros(())

    def step():
        x, y = torch.randn(32, 64), torch.randint(0, 8, (32,))
        optimizer.zero_grad()
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits, y)
        right.add_((logits.argmax(1) == y).sum())
        loss.backward()
        optimizer.step()
    ```

    ## When to ignore
    Memory is shorter than time, and the first result is too large to be kept.

    ## Sources
    Value numbering as compilers do it, over the operators that ran. The share is ours.
    """

    code = "WASTE005"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.02, "Share of the step's work from which it is reported.")
    size: int = knob(
        1 << 20, "Bytes computed per step from which it is reported with no product of matrices."
    )

    def detect(self, thrown: ThrownWork, machine: Machine) -> Iterator[Finding]:
        for each in thrown.of("repeat", "again"):
            if each.share < self.share or not (each.products or each.nbytes >= self.size):
                continue
            where = "" if each.other is None else f" at {each.other}"
            yield self.report(
                thrown,
                each,
                machine,
                f"what is computed here is computed{where} as well, of the same tensors: "
                f"{worth(each)}",
                severity=Severity.NOTE if each.what == "again" else None,
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy("Keep the first result in a variable and use it again, detached for metrics.")
