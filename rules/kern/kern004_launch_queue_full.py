"""KERN004: the launch queue is full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace.idle import DeviceIdle
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class LaunchQueueFull(Rule):
    """The host ran so far ahead that the launch queue is full."""

    code = "KERN004"
    severity = Severity.NOTE
    since = "0.1"

    depth: int = knob(
        1000, "Kernels in the queue from which it counts as full (the driver's limit is 1024)."
    )
    share: float = knob(0.05, "Share of the steps' time that launches must have been held.")

    def detect(self, idle: DeviceIdle) -> Iterator[Finding]:
        if idle.deepest < self.depth or idle.full_us < self.share * idle.window_us:
            return
        yield Finding(
            None,
            f"up to {idle.deepest:,} kernels wait in the queue: launches were held for "
            f"{amounts.duration(idle.full_us / idle.steps)} "
            "in each step, and the device was never out of work",
            steps=idle.steps if idle.marked else 0,
            seen_on="trace",
            facts=idle.facts,
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Nothing to repair on the device. Do host work (logging, preparing data) in another "
            "thread if it comes late."
        )
