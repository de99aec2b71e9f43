"""KERN003: kernels are so short that the host cannot launch them fast enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace.idle import LAUNCHING, DeviceIdle
from auditor.evidence.trace.optimizer import OptimizerCalls
from auditor.model import Finding, Remedy, Severity
from auditor.model.what_if import Change
from auditor.rule import Rule, knob, see


@dataclass(frozen=True)
class LaunchBound(Rule):
    """The device waits for launches: its kernels are shorter than the host takes to launch them."""

    code = "KERN003"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.15,
        "Share of the steps' time between launches, with an empty queue, from which it is a "
        "warning.",
    )
    noticed: float = knob(0.05, "Share from which it is a note.")
    least_kernels: int = knob(
        20, "Kernels in the trace below which the finding is a note: that is no training step."
    )

    def detect(self, idle: DeviceIdle, optimizer: OptimizerCalls) -> Iterator[Finding]:
        share = idle.share_of(LAUNCHING)
        if share < self.noticed:
            return
        lost = idle.us_per_step(LAUNCHING)
        optimizers = (
            min(lost, optimizer.idle_us_per_step) if optimizer.one_by_one else 0.0
        )  # OPT001 has it, with its price
        single = optimizer.one_by_one and 2 * optimizers >= lost
        loud = (
            share >= self.share
            and idle.marked
            and idle.kernels >= self.least_kernels
            and idle.small
            and not single
        )
        most = f", most of it in the optimizer{see('OPT001')}" if single else ""
        yield Finding(
            None,
            f"the device waits for launches {amounts.percent(share)} of {idle.of_what}{most}: "
            f"the median kernel runs {amounts.duration(idle.median_kernel_us)}, and "
            f"{amounts.percent(idle.empty)} of the kernels found the queue empty",
            steps=idle.steps if idle.marked else 0,
            per_step=idle.kernels / idle.steps if idle.marked else 0.0,
            lost_us_per_step=lost - optimizers if loud else None,
            basis="estimated" if loud else "none",
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=idle.facts,
            changes=(_launches(optimizer),) if loud else (),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            'Launch less: torch.compile(model, mode="reduce-overhead") fuses operators and replays '
            "CUDA graphs; "
            "a larger batch makes each kernel longer."
        )


def _launches(optimizer: OptimizerCalls) -> Change:
    """What a replay leaves out: where OPT001 has the optimizer's launches, the others."""
    return Change("other launches" if optimizer.one_by_one else "launches")
