"""GRAPH004: gradients that keep a graph of their own from step to step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import CreateGraphCycles, Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class GradientsKeepTheirGraph(Rule):
    """
    Gradients keep the graph of earlier backward passes alive.

    ## What it finds
    A line whose ``backward(create_graph=True)`` leaves gradients that have a graph, and that still
    have it a step later: they were never set to None, or their parameters were dropped and the
    cycle keeps them. Silent: gradients that are reset before the next backward, and
    ``torch.autograd.grad(create_graph=True)``, which stores none.

    ## Why it costs
    Such a gradient refers to its graph, the graph to the parameter, the parameter to the gradient.
    Python's collector cannot see all of this cycle, so it stays with every tensor saved in it;
    where gradients add up, each step adds a graph.

    ## Example
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def step():
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward(create_graph=True)
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def step():
        loss = model(torch.ones(4, 8)).square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        penalty = sum(gradient.square().sum() for gradient in gradients)
        (loss + penalty).backward()
        model.zero_grad()
    ```

    ## When to ignore
    The gradients are reset later than the audit looked.

    ## Sources
    torch's own warning at ``backward(create_graph=True)``: "will create a reference cycle between
    the parameter and its gradient which can cause a memory leak". The share is ours.
    """

    code = "GRAPH004"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.5,
        "Share of the diagnosed steps after which gradients of an earlier step must still have "
        "their graph.",
    )

    def detect(self, cycles: CreateGraphCycles, machine: Machine) -> Iterator[Finding]:
        for cycle in cycles.lasting(self.share):
            grown = cycle.bytes_per_step
            more = (
                f", and {amounts.size(grown)} more are held after each" if grown is not None else ""
            )
            yield Finding(
                cycle.site,
                f"{cycle.leaves[-1]} gradients of backward(create_graph=True) kept their graph "
                "into a later step on "
                f"{len(cycle.steps)} of {cycles.steps} steps{more}",
                steps=len(cycle.steps),
                per_step=1.0,
                lost_bytes=grown,
                grows=True,
                basis="none" if grown is None else "measured",
                seen_on=machine.device,
                facts=(
                    ("gradients with a graph", f"{cycle.leaves[0]}, then {cycle.leaves[-1]}"),
                    *_held(cycle.held_bytes),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Use torch.autograd.grad(..., create_graph=True), which stores nothing in .grad; or "
            "set the gradients to None (zero_grad()) "
            "once the second backward is over."
        )


def _held(held: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    if held:
        yield "saved tensors held", f"{amounts.size(held[0])}, then {amounts.size(held[-1])}"
