"""MEM012: the host's memory is nearly full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob

from .memory import HostMemory


@dataclass(frozen=True)
class HostMemoryNearlyFull(Rule):
    """Host memory is nearly full."""

    code = "MEM012"
    severity = Severity.WARNING
    since = "0.1"

    full: float = knob(0.85, "Share of the usable RAM that the process must hold.")
    share: float = knob(0.5, "Share of the timed steps that must end above it.")

    def detect(self, host: HostMemory, machine: Machine) -> Iterator[Finding]:
        if machine.on.shadow:
            raise NotLooked("in a rehearsal the device's tensors lie in host memory")
        if machine.on.null:
            raise NotLooked("on a null device there is no timing pass, from which this is read")
        if not host.usable or not host.trend.values:
            raise NotLooked(
                "the recording does not say how much memory the machine or the process had"
            )
        above = sum(held >= self.full * host.usable for held in host.trend.values)
        if above < self.share * len(host.trend.values):
            return
        peak = host.trend.peak
        yield Finding(
            None,
            f"the process holds {amounts.size(peak)} of {amounts.size(host.usable)} of host memory "
            f"({amounts.percent(peak / host.usable)}), on {above} of "
            f"{len(host.trend.values)} steps more than {amounts.percent(self.full)}",
            steps=above,
            seen_on=machine.device,
            facts=(("held at most", amounts.size(peak)), ("usable", amounts.size(host.usable))),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Look for what is held once and for all: datasets read into memory, several copies of "
            "a checkpoint (load it with mmap=True "
            "and map_location), caches without a bound."
        )
