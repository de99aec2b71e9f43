"""GRAPH004: gradients that keep a graph of their own from step to step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.grouping import together
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .rows import CycleRow


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

    def detect(self, cycles: Rows[CycleRow], steps: Steps, machine: Machine) -> Iterator[Finding]:
        for of_line in together(cycles, lambda row: row.at):
            seen = sorted(of_line, key=lambda row: row.step)
            if len(seen) < self.share * len(steps.loud):
                continue
            first, last = seen[0], seen[-1]
            held = [row.held_bytes for row in seen if row.held_bytes is not None]
            known = held if len(held) == len(seen) else []
            grown = _growth(known)
            more = (
                f", and {amounts.size(grown)} more are held after each" if grown is not None else ""
            )
            yield Finding(
                first.site,
                f"{last.leaves} gradients of backward(create_graph=True) kept their graph into a "
                f"later step on {len(seen)} of {len(steps.loud)} steps{more}",
                steps=len(seen),
                per_step=1.0,
                lost_bytes=grown,
                grows=True,
                basis="none" if grown is None else "measured",
                seen_on=machine.device,
                facts=(
                    ("gradients with a graph", f"{first.leaves}, then {last.leaves}"),
                    *_held(known),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Use torch.autograd.grad(..., create_graph=True), which stores nothing in .grad; or "
            "set the gradients to None (zero_grad()) "
            "once the second backward is over."
        )


def _growth(held: Sequence[int]) -> int | None:
    """Bytes that come to them in a step; None where that is unknown, or they do not grow."""
    if len(held) < 2:
        return None
    growth = (held[-1] - held[0]) // (len(held) - 1)
    return growth if growth > 0 else None


def _held(held: Sequence[int]) -> Iterator[tuple[str, str]]:
    if held:
        yield "saved tensors held", f"{amounts.size(held[0])}, then {amounts.size(held[-1])}"
