"""Switches that were left on: anomaly mode during backward passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.rhythm import Rhythm, rhythm
from auditor.evidence.steps import Steps
from auditor.evidence.table import Table, rows_of
from auditor.model import Site
from auditor.recording import Recording, Row


@dataclass(frozen=True)
class AnomalyStep:
    """Backward calls under anomaly mode in one step; ``site`` is where it was switched on (None: before the recorder)."""

    step: int
    n: int = 1
    site: Site | None = None


@dataclass(frozen=True)
class Modes(Table):
    """Anomaly mode in the quiet pass, or in the loud pass where there was no quiet one."""

    parts: ClassVar[tuple[str, ...]] = ("modes", "steps")

    steps: int = 0
    anomaly: tuple[AnomalyStep, ...] = ()

    @classmethod
    def build(cls, recording: Recording) -> Modes:
        """From the quiet pass if any of its steps completed."""
        steps = Steps.build(recording)
        name = "quiet" if steps.quiet else "loud"
        rows = (row for row in rows_of(recording, "modes") if row["pass"] == name and row["what"] == "anomaly")
        return cls(len(steps.quiet or steps.loud), tuple(_anomaly_step(recording, row) for row in rows))

    @property
    def anomaly_rhythm(self) -> Rhythm:
        """On which steps a backward ran under anomaly mode."""
        return rhythm({row.step for row in self.anomaly}, self.steps)

    @property
    def anomaly_backwards(self) -> float:
        """Backward calls under anomaly mode in each step, on average."""
        return sum(row.n for row in self.anomaly) / self.steps if self.steps else 0.0

    @property
    def anomaly_site(self) -> Site | None:
        """The line that switched it on for most steps; None if that was before the recorder looked."""
        sites = [row.site for row in self.anomaly if row.site is not None]
        return max(sites, key=sites.count, default=None)


def _anomaly_step(recording: Recording, row: Row) -> AnomalyStep:
    at = row.get("at")
    return AnomalyStep(row["step"], row["n"], None if at is None else recording.site(at))
