"""COMP006: the step is slower compiled than eager."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.batch_means import Estimate
from auditor.evidence.recorded.compiled_regions import CompiledRegions, Region
from auditor.evidence.recorded.compiles import Compiles
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..pricing import between

DEBUGGING = ("eager", "aot_eager", "aot_eager_decomp_partition")
"""Backends that make no code: they are for finding out which part of the compiler fails."""


@dataclass(frozen=True)
class Hints:
    """The backend, where it is one that makes no code."""

    backend: str


@dataclass(frozen=True)
class CompileDoesNotPay(Rule):
    """The step is slower compiled than without the compiler"""

    code = "COMP006"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.02, "Share of the step that compiling must cost at least, at the interval's near end."
    )

    def detect(
        self, regions: CompiledRegions, compiles: Compiles, steps: Steps, machine: Machine
    ) -> Iterator[Finding]:
        if any(each.limit for each in compiles.recompiled):
            return  # COMP003 says why
        if not compiles.compiled:
            return  # COMP004 says why
        gained = steps.gained_by_compile()
        running = [each for each in regions.regions if each.steps]
        if gained is None or not running:
            return
        lost = Estimate(-gained.value, -gained.high, -gained.low)
        if not lost.proven or steps.share_of_step(lost.low) < self.share:
            return
        backend = _backend(running)
        found = Finding(
            running[0].site,
            f"the step takes {amounts.duration(lost.value)} less with torch.compile held off"
            + (f": the backend {backend!r} makes no code" if backend else ""),
            lost_us_per_step=lost.value,
            basis="measured",
            seen_on=machine.device,
            facts=(
                ("steps compiled, and held eager", f"{len(steps.quiet)}, {len(steps.eager_held)}"),
                ("compiled functions and modules", str(len(running))),
            ),
            hints=Hints(backend),
        )
        yield between(found, lost)

    def remedy(self, finding: Finding) -> Remedy | None:
        if finding.hints_as(Hints).backend:
            return Remedy(
                "Drop backend=...: the default, 'inductor', makes code; or do not compile."
            )
        return Remedy(
            "Compile larger parts, or none: the model instead of its layers, the step with the "
            "optimizer; look at the graph breaks first, and measure again."
        )


def _backend(running: list[Region]) -> str:
    """The backend of all of them, if it is one for debugging."""
    for name in DEBUGGING:
        if all(f"backend={name!r}" in each.options for each in running):
            return name
    return ""
