"""KERN002: long gaps in the device's work while the host does something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace.idle import HOST, DeviceIdle, Gap
from auditor.model import Finding, Remedy, Severity
from auditor.model.what_if import Change
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class HostLeavesDeviceIdle(Rule):
    """The device idles in long gaps while the host does something else."""

    code = "KERN002"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.1, "Share of the steps' time in such gaps from which it is reported.")
    of_steps: float = knob(
        0.5,
        "Share of the steps that must have such a gap, else it is a note: one may be a checkpoint.",
    )
    least_kernels: int = knob(
        20, "Kernels in the trace below which the finding is a note: that is no training step."
    )

    def detect(self, idle: DeviceIdle) -> Iterator[Finding]:
        share = idle.share_of(HOST)
        if share < self.share or not idle.gaps:
            return
        usual = idle.gap_steps >= self.of_steps * idle.steps
        loud = idle.marked and usual and idle.kernels >= self.least_kernels
        longest = idle.gaps[0]
        yield Finding(
            None,
            f"the device idles {amounts.percent(share)} of {idle.of_what} in gaps of 500 us or "
            "more while the host does something else; "
            f"the longest is {amounts.duration(longest.us)}{_in(longest)}",
            steps=idle.steps if idle.marked else 0,
            lost_us_per_step=idle.us_per_step(HOST) if loud else None,
            basis="estimated" if loud else "none",
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=tuple(
                (
                    f"gap at {amounts.duration(gap.at_us)}",
                    f"{amounts.duration(gap.us)}{_in(gap)}{_until(gap)}",
                )
                for gap in idle.gaps
            ),
            changes=(Change("host gaps"),) if loud else (),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Move what the host does there out of the step: into loader workers, onto the device, "
            "or to every so many steps."
        )


def _in(gap: Gap) -> str:
    return f", in `{gap.doing}`" if gap.doing else ", in Python between operators"


def _until(gap: Gap) -> str:
    return f", until {gap.api}" if gap.api else ""
