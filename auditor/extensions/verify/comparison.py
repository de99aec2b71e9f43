"""Two audits set side by side: step time with an interval, memory, host syncs, and which findings
are new, gone or kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from auditor.extensions.verify.intervals import Interval, Run, of_recordings
from auditor.extensions.verify.likeness import Row, common, kind_of, likeness
from auditor.model import Finding, Report


@dataclass(frozen=True)
class Side:
    """One side: a report (of the last run, where there are several) and the step times of each run.

    ``runs`` is empty where only a report is there, which keeps the median and not the steps.
    ``args`` is the program's own command line; None where it is not known.
    """

    report: Report
    runs: tuple[Run, ...] = ()
    args: tuple[str, ...] | None = None

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
        looked = any(
            v.code.startswith("SYNC") and v.status in ("found", "clean")
            for v in self.report.verdicts
        )
        return sum(map(_waits, self.report.findings)) if looked else None

    @property
    def looked(self) -> frozenset[str]:
        """Codes of the rules that could look."""
        return frozenset(
            verdict.code for verdict in self.report.verdicts if verdict.status in ("found", "clean")
        )


WAITS = frozenset(
    {"SYNC001", "SYNC002", "SYNC003", "SYNC004", "SYNC005", "SYNC006", "SYNC008", "SYNC011"}
)
"""Rules whose findings count places where the host waits for the device; the rest of the family
counts other calls.
"""


REHEARSABLE = frozenset({"rehearsal", "null", "source"})
"""Where a finding was seen that a rehearsal alone, and one beside a run on the CPU, can both
see.
"""


@dataclass(frozen=True)
class Comparison:
    """What changed from ``before`` to ``after``; findings go by their key.

    ``step`` is None where no interval is possible. ``barred`` has the reason for each row that
    cannot be compared. ``span`` holds the first and the last step (0-based) that both sides timed,
    where one of them timed others too. ``one_sided`` are findings that could only be seen on one
    side (by a rule that could not look on the other, or by what a rehearsal does not have), so that
    they are neither new nor gone.
    """

    before: Side
    after: Side
    step: Interval | None
    new: tuple[Finding, ...]
    gone: tuple[Finding, ...]
    kept: tuple[Finding, ...]
    one_sided: tuple[Finding, ...]
    barred: dict[Row, str]
    told: tuple[str, ...]
    span: tuple[int, int] | None

    def regressed(self, bound: float) -> bool:
        """True if the step is proven to take more than ``1 + bound`` times as long."""
        return self.step is not None and self.step.low > 1.0 + bound


def compare(before: Side, after: Side) -> Comparison:
    """Set two sides beside each other that are not refused
    (:func:`auditor.extensions.verify.likeness.refusal`).
    """
    alike = likeness(before.report, after.report)
    barred, span = dict(alike.barred), None
    if "step_us" not in barred:
        before, after, span = _timed_alike(before, after, barred)
    both, alike_made = before.looked & after.looked, kind_of(before.report) == kind_of(after.report)
    old, new = before.report.findings, after.report.findings
    known, still = _keys(old), _keys(new)
    appeared = [finding for finding in new if known.isdisjoint(finding.keys)]
    vanished = [finding for finding in old if still.isdisjoint(finding.keys)]

    def seen_by_both(finding: Finding) -> bool:
        return not both.isdisjoint(finding.codes) and (alike_made or finding.seen_on in REHEARSABLE)

    if not both:
        barred["findings"] = "no rule could look on both sides"
    return Comparison(
        before,
        after,
        None if "step_us" in barred else of_recordings(before.runs, after.runs),
        tuple(filter(seen_by_both, appeared)),
        tuple(filter(seen_by_both, vanished)),
        tuple(finding for finding in new if not known.isdisjoint(finding.keys)),
        tuple(finding for finding in (*appeared, *vanished) if not seen_by_both(finding)),
        barred,
        (*alike.told, *_other_arguments(before, after)),
        span,
    )


def _timed_alike(
    before: Side, after: Side, barred: dict[Row, str]
) -> tuple[Side, Side, tuple[int, int] | None]:
    """Both sides with the steps that both timed; where there are none, ``barred`` says why."""
    one, other = before.report.run, after.report.run
    if before.runs and after.runs:
        old, new, span = common(before.runs, after.runs)
        if old:
            return replace(before, runs=old), replace(after, runs=new), span
        barred["step_us"] = "other steps of the program were timed on each side"
    elif (one.steps, one.warmup) != (other.steps, other.warmup):
        barred["step_us"] = (
            f"{one.steps} and {other.steps} steps, and the times of single steps are not there"
        )
    return before, after, None


def _other_arguments(before: Side, after: Side) -> tuple[str, ...]:
    if before.args is None or after.args is None or before.args == after.args:
        return ()
    one, other = (" ".join(side.args or ()) or "none" for side in (before, after))
    return (
        f"the target's own arguments differ, {one} and {other}: what changed may be their doing",
    )


def _keys(findings: Sequence[Finding]) -> set[str]:
    """Those of all parts: one report may have joined what another, of an older version or of less
    code, held apart.
    """
    return {key for finding in findings for key in finding.keys}


def _waits(finding: Finding) -> float:
    if finding.code in WAITS and not finding.places:
        return finding.per_step
    return sum(place.per_step for place in finding.places if place.code in WAITS)
