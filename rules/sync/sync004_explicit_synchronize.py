"""SYNC004: ``torch.cuda.synchronize()`` in the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.device_calls import DeviceCalls
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import Permit
from auditor.rule import Rule, knob

from .waiting import waits_in_trace

WAITS = ("synchronize", "Event.synchronize", "Stream.synchronize")


@dataclass(frozen=True)
class Hints:
    """Whether the call is a statement of its own."""

    alone: bool = False


@dataclass(frozen=True)
class ExplicitSynchronize(Rule):
    """The step waits for the device on purpose."""

    code = "SYNC004"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    edits = (
        Permit(
            "drop_statement",
            ("torch.cuda.synchronize", "torch.accelerator.synchronize", ".synchronize"),
        ),
    )

    share: float = knob(0.5, "Share of the steps from which an explicit synchronize is reported.")

    def detect(self, calls: DeviceCalls, machine: Machine, source: Source) -> Iterator[Finding]:
        seen = [site for site in calls.sites(WAITS) if site.pattern.usual(self.share)]
        if not seen:
            machine.nothing_seen_without_cuda("calls behind a check for a GPU did not happen")
        for site in seen:
            waits = (
                "the host waits for the GPU"
                if machine.cuda
                else "on a GPU the host would wait for all queued work"
            )
            yield Finding(
                site.site,
                f"{site.name}() on {site.pattern}: {waits}{site.pattern.phases}",
                steps=len(site.pattern.seen),
                per_step=site.per_step,
                lost_us_per_step=site.us_per_step if machine.cuda else None,
                basis="estimated" if machine.cuda else "none",
                seen_on=machine.device,
                severity=None if machine.gpu_path else Severity.NOTE,
                facts=site.facts,
                hints=Hints(
                    alone=site.name == "synchronize"
                    and source.stands_alone(site.site, "synchronize")
                ),
            )

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits, waits.of("explicit"), lambda place: f"{place.api} without an operator around it"
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        text = "Remove it; to time work on the device use torch.cuda.Event(enable_timing=True)."
        if finding.site is None or not finding.hints_as(Hints).alone:
            return Remedy(text)
        reason = (
            "what is trained stays the same, but host timers around it would no longer time the "
            "device's work"
        )
        return Remedy(
            text, (Edit(finding.site, "drop_statement", call="synchronize", reason=reason),)
        )
