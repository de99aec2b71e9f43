"""Two audits set side by side: step time with an interval, memory, host syncs, and which findings are new, gone or kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from auditor.model import Finding, Report
from auditor.verify.intervals import Interval, Run, of_recordings


@dataclass(frozen=True)
class Side:
    """One side: a report (of the last run, where there are several) and the step times of each run.

    ``runs`` is empty where only a report is there, which keeps the median and not the steps.
    """

    report: Report
    runs: tuple[Run, ...] = ()

    @property
    def step_us(self) -> float | None:
        """Median step time in us, of the steps themselves where they are there."""
        if self.runs:
            return median(median(run.us) for run in self.runs)
        times = self.report.run.step_us
        return times.median if times is not None else None

    @property
    def syncs(self) -> float | None:
        """Host syncs per step that were reported; None where no rule of that family could look."""
        looked = any(v.code.startswith("SYNC") and v.status in ("found", "clean") for v in self.report.verdicts)
        return sum(map(_waits, self.report.findings)) if looked else None


WAITS = frozenset({"SYNC001", "SYNC002", "SYNC003", "SYNC004", "SYNC005", "SYNC006", "SYNC008", "SYNC011"})
"""Rules whose findings count places where the host waits for the device; the rest of the family counts other calls."""


@dataclass(frozen=True)
class Comparison:
    """What changed from ``before`` to ``after``. ``step`` is None where no interval is possible; findings go by their key."""

    before: Side
    after: Side
    step: Interval | None
    new: tuple[Finding, ...]
    gone: tuple[Finding, ...]
    kept: tuple[Finding, ...]

    def regressed(self, bound: float) -> bool:
        """True if the step is proven to take more than ``1 + bound`` times as long."""
        return self.step is not None and self.step.low > 1.0 + bound


def compare(before: Side, after: Side) -> Comparison:
    """Set two sides beside each other."""
    old, new = before.report.findings, after.report.findings
    known, still = _keys(old), _keys(new)
    return Comparison(
        before,
        after,
        of_recordings(before.runs, after.runs),
        tuple(finding for finding in new if known.isdisjoint(finding.keys)),
        tuple(finding for finding in old if still.isdisjoint(finding.keys)),
        tuple(finding for finding in new if not known.isdisjoint(finding.keys)),
    )


def unlike(before: Side, after: Side) -> tuple[str, ...]:
    """What else differs between the two, in one sentence each: then a difference may not be the program's."""
    one, other = before.report.run, after.report.run
    pairs = (
        ("target", one.target, other.target),
        ("device", one.device, other.device),
        ("torch", one.torch, other.torch),
        ("python", one.python, other.python),
        ("processes", str(one.world_size), str(other.world_size)),
        *(
            (name, before.report.environment.get(name, ""), after.report.environment.get(name, ""))
            for name in ("processor", "torch_threads")
        ),
    )
    return tuple(f"the two differ in their {name}: {old} and {new}" for name, old, new in pairs if old != new)


def _keys(findings: Sequence[Finding]) -> set[str]:
    """Those of all parts: one report may have joined what another, of an older version or of less code, held apart."""
    return {key for finding in findings for key in finding.keys}


def _waits(finding: Finding) -> float:
    if finding.code in WAITS and not finding.places:
        return finding.per_step
    return sum(place.per_step for place in finding.places if place.code in WAITS)
