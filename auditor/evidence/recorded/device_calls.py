"""Calls from the user's code of functions that query or command the device, with the host time
spent inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor import amounts
from auditor.batch_means import Estimate, mean_of
from auditor.evidence.grouping import by_line
from auditor.evidence.recorded.machine import Device, device_of
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.recorded.timed_calls import CallingLine
from auditor.evidence.table import Evidence, Rows, Table
from auditor.recordings.schema.sync import CallRow


@dataclass(frozen=True)
class CallSite(CallingLine[CallRow]):
    """A line that makes such calls. ``calls`` are those of the pass that it was judged by; their
    time has waiting for a processor taken off.
    """

    pass_name: str

    @property
    def name(self) -> str:
        """The function called there; of several the one that took longest."""
        return max(self.calls, key=lambda call: call.us).name

    @property
    def price(self) -> Estimate | None:
        """``us_per_step`` with its interval; None of too few steps, and of a pass with instruments:
        that has no times that count.
        """
        if self.pass_name != "quiet":
            return None
        us = [0.0] * self.steps
        for call in self.calls:
            us[call.step] += call.us
        return mean_of(us)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        return (
            ("call", self.name),
            ("seen on", f"{self.pattern} of the {amounts.pass_named(self.pass_name)}"),
            ("host time", f"{amounts.duration(self.us_per_step)} per step"),
        )


@dataclass(frozen=True)
class DeviceCalls(Table):
    """The calls of the quiet pass, or of the loud pass where there was no quiet one."""

    parts: ClassVar[tuple[str, ...]] = ("calls", "steps")

    device: Device = "cpu"
    steps: int = 0
    calls: tuple[CallRow, ...] = ()
    pass_name: str = "quiet"

    @classmethod
    def build(cls, evidence: Evidence) -> DeviceCalls:
        """From the quiet pass if any of its steps completed."""
        steps = evidence.get(Steps)
        name = "quiet" if steps.quiet else "loud"
        calls = tuple(row for row in evidence.get(Rows[CallRow]) if row.pass_name == name)
        return cls(device_of(evidence), len(steps.quiet or steps.loud), calls, name)

    def sites(self, names: Iterable[str]) -> Iterator[CallSite]:
        """Lines that call any of ``names``, by file and line."""
        wanted = frozenset(names)
        chosen = (call for call in self.calls if call.name in wanted and call.step < self.steps)
        for calls in by_line(chosen):
            yield CallSite(calls[0].site, tuple(calls), self.steps, self.pass_name)
