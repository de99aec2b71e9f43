"""SYNC008: a memset that holds the host until it is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .driver_calls import DriverCalls, TraceDriver


@dataclass(frozen=True)
class SynchronousMemset(Rule):
    """The host waits for a memset in the step."""

    code = "SYNC008"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.5, "Share of the trace's steps from which it is a warning; below it is a note."
    )

    def detect(self, driver: TraceDriver) -> Iterator[Finding]:
        priced = driver.marked and driver.timed
        for calls in driver.memsets:
            inside = (
                (("host time inside", f"{amounts.duration(calls.us / calls.n)} a call"),)
                if driver.timed
                else ()
            )
            seen = calls.pattern()
            often = (
                f"on {seen}"
                if driver.marked
                else f"{calls.n} times in the trace, which marks no steps"
            )
            memory = f" of {calls.memory.lower()} memory" if calls.memory else ""
            yield Finding(
                calls.site,
                f"{calls.api}{memory} holds the host {often}",
                steps=len(seen.seen) if driver.marked else 0,
                per_step=sum(calls.per_step) / seen.of if driver.marked else 0.0,
                lost_us_per_step=sum(calls.lost_us) / seen.of if priced else None,
                basis="estimated" if priced else "none",
                seen_on="trace",
                severity=None if self._usual(driver, calls) else Severity.NOTE,
                facts=(*inside, ("calls", str(calls.n))),
                changes=(calls.without(),) if priced else (),
            )

    def _usual(self, driver: TraceDriver, calls: DriverCalls) -> bool:
        return driver.marked and calls.pattern().share >= self.share

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Call the Async form on torch's current stream, or zero a tensor on the device with "
            "zero_()."
        )
