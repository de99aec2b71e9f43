"""Switches that were left on: anomaly mode during backward passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.read_purpose import framework_of
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema import ModeRow, ReadRow

ENGINE = "torch/autograd/graph.py:_engine_run_backward"
"""The innermost Python frame of what the autograd engine does by itself."""


@dataclass(frozen=True)
class AnomalyStep:
    """Backward calls under anomaly mode in one step; ``site`` is where it was switched on (None:
    before the recorder).
    """

    step: int
    n: int = 1
    site: Site | None = None
    library: str = ""
    """The function of a library that switched it on, below that line; empty where the line itself
    did.
    """


@dataclass(frozen=True)
class DebugModes(Table):
    """Anomaly mode in the quiet pass, or in the loud pass where there was no quiet one."""

    parts: ClassVar[tuple[str, ...]] = ("modes", "steps")

    steps: int = 0
    anomaly: tuple[AnomalyStep, ...] = ()
    checks: float | None = None
    """Host syncs in each rehearsed step that the autograd engine makes to look for NaN; None
    without a rehearsal.
    """

    @classmethod
    def build(cls, evidence: Evidence) -> DebugModes:
        """From the quiet pass if any of its steps completed."""
        steps = evidence.get(Steps)
        name = "quiet" if steps.quiet else "loud"
        rows = (
            row
            for row in rows_of(evidence, ModeRow)
            if row.pass_name == name and row.what == "anomaly"
        )
        return cls(
            len(steps.quiet or steps.loud),
            tuple(_anomaly_step(evidence, row) for row in rows),
            _checks(evidence),
        )

    @property
    def anomaly_rhythm(self) -> StepPattern:
        """On which steps a backward ran under anomaly mode."""
        return step_pattern({row.step for row in self.anomaly}, self.steps)

    @property
    def anomaly_backwards(self) -> float:
        """Backward calls under anomaly mode in each step, on average."""
        return sum(row.n for row in self.anomaly) / self.steps if self.steps else 0.0

    @property
    def anomaly_site(self) -> Site | None:
        """The line that switched it on for most steps; None if that was before the recorder
        looked.
        """
        sites = [row.site for row in self.anomaly if row.site is not None]
        return max(sites, key=sites.count, default=None)

    @property
    def anomaly_library(self) -> str:
        """The library's function that did so on that line's behalf; empty if there is none."""
        return next((row.library for row in self.anomaly if row.site == self.anomaly_site), "")


def _checks(evidence: Evidence) -> float | None:
    rehearsed = evidence if evidence.recording.device.shadow else evidence.inside("rehearsal")
    if rehearsed is None or not rehearsed.has("reads"):
        return None
    steps = len(rehearsed.get(Steps).loud)
    rows = [
        row for row in rehearsed.rows(ReadRow) if row.pass_name == "loud" and row.kind == "item"
    ]
    by_engine = [
        row.n for row in rows if (rehearsed.recording.site_row(row.at).via or "").startswith(ENGINE)
    ]
    return sum(by_engine) / steps if steps else None


def _anomaly_step(evidence: Evidence, row: ModeRow) -> AnomalyStep:
    at = row.at
    if at is None:
        return AnomalyStep(row.step, row.n)
    library = framework_of(evidence.recording.site_row(at).via or "")
    return AnomalyStep(row.step, row.n, evidence.recording.site(at), library)
