"""GRAPH004: gradients that keep a graph of their own from step to step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .unused_graphs import CreateGraphCycles


@dataclass(frozen=True)
class GradientsKeepTheirGraph(Rule):
    """Gradients keep the graph of earlier backward passes alive."""

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
