"""WASTE003: parts of a batch that are moved to the device and never read there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.thrown_work import ThrownWork
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, knob

from .wasting import WasteRule


@dataclass(frozen=True)
class CopiedUnread(WasteRule):
    """Something is moved to the device and nothing reads it there."""

    code = "WASTE003"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    share: float = knob(
        0.05, "Share of the bytes that a step copies to the device from which it is reported."
    )

    def detect(self, thrown: ThrownWork, machine: Machine) -> Iterator[Finding]:
        if machine.device == "cpu":
            raise NotLooked("nothing is moved to a device on a CPU")
        for each in thrown.of("copy"):
            share = each.nbytes / max(1, thrown.copied)
            if share < self.share:
                continue
            yield Finding(
                each.site,
                f"{each.op} is moved to the device on each step and nothing reads it: "
                f"{amounts.size(each.nbytes)} per step, {amounts.percent(share)} of what is moved",
                steps=each.steps,
                per_step=each.operators,
                seen_on=machine.device,
                facts=(("bytes per step", amounts.size(each.nbytes)),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy("Move only what the step reads, and leave the rest on the host.")
