"""What the rules about a step bound by its copies have in common: both directions, by the device's
own clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from auditor import amounts
from auditor.evidence.trace.steps import TraceSteps
from auditor.model import Finding, Severity
from auditor.model.what_if import Change
from auditor.rule import Rule, knob

WITHOUT = {"to_device": Change("copies to device"), "to_host": Change("copies to host")}


@dataclass(frozen=True)
class TransferRule(Rule):
    """Base of the rules about time in which a device does nothing but copy; no rule itself."""

    share: float = knob(
        0.1,
        "Warn from this share of the steps' time in exposed copies (TraceML).",
    )
    severe: float = knob(0.2, "Report an error from this share (TraceML).")
    least_us: float = knob(100.0, "Report only from this mean time per step in us.")

    def bound(
        self, steps: TraceSteps, way: Literal["to_device", "to_host"], words: str
    ) -> Iterator[Finding]:
        """A finding where copies ``way`` (``to_device``, ``to_host``) take a share of the whole
        that recurs after the first step.

        Its price leaves out what pinned memory would save: that is the price of the waits for
        pageable copies.
        """
        steps.need_a_device()
        part = f"{way}_alone_us"
        share, mean = steps.share(part), steps.mean(part)
        if min(share, steps.steady(part)) < self.share or mean < self.least_us:
            return
        often, marked = steps.steps_above(part, self.share), steps.marked
        slow = min(mean, steps.mean(f"{way}_slow_us"))
        certain = steps.certain and steps.recurs(part, self.share)
        severity = Severity.ERROR if share >= self.severe else None
        yield Finding(
            None,
            f"for {amounts.percent(share)} of {steps.where} the device only copies {words}",
            steps=often if marked else 0,
            per_step=1.0 if marked else 0.0,
            lost_us_per_step=mean - slow if marked else None,
            basis="estimated" if marked else "none",
            seen_on="trace",
            severity=severity if certain else Severity.NOTE,
            facts=(
                (f"copies {words}", f"{amounts.percent(steps.share(f'{way}_us'))} of the time"),
                ("with nothing beside them", f"{amounts.duration(mean)} per step"),
                *(
                    (
                        (
                            "of that because the memory is pageable",
                            f"{amounts.duration(slow)} per step",
                        ),
                    )
                    if slow
                    else ()
                ),
                ("steps from", steps.source),
            ),
            changes=(WITHOUT[way],) if marked else (),
        )
