"""Two audits side by side: step time with an interval, memory, host syncs, findings compared."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from auditor.batch_means import FEWEST_BATCHES
from auditor.extensions.verify.intervals import Interval, RunTimes, of_recordings
from auditor.model import Finding, Report
from auditor.model.devices import Input, device_named, input_named


@dataclass(frozen=True)
class Side:
    """One side: a report (of the last run, where there are several) and the step times of each run.

    ``runs`` is empty if only a report is there, which keeps the median and not the steps.
    ``args`` is the program's own command line; None if it is not known.
    """

    report: Report
    runs: tuple[RunTimes, ...] = ()
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
        """Host syncs per step that were reported; None if no rule of that family could look."""
        looked = any(
            v.code.startswith("SYNC") and v.status in ("found", "clean")
            for v in self.report.verdicts
        )
        if not looked:
            return None
        return sum(
            place.per_step
            for finding in self.report.findings
            for place in finding.places or (finding,)
            if place.code in WAITS
        )

    @property
    def looked(self) -> frozenset[str]:
        """Codes of the rules that could look."""
        return frozenset(
            verdict.code for verdict in self.report.verdicts if verdict.status in ("found", "clean")
        )


WAITS = frozenset({"SYNC001", "SYNC002", "SYNC003", "SYNC004", "SYNC005", "SYNC006", "SYNC011"})
"""Rules that count places where the host waits; the rest of the family counts other calls."""


REHEARSABLE = frozenset({"rehearsal", "null", "source"})
"""Where a finding was seen that a rehearsal alone, and one beside a CPU's run, can both see."""


@dataclass(frozen=True)
class Comparison:
    """What changed from ``before`` to ``after``; findings go by their key.

    ``step`` is None if no interval is possible. ``barred`` has the reason for each row that
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
    """Set two sides beside each other that are not refused (:func:`refusal`)."""
    told = tuple(_other_differences(before, after))
    barred, span = barred_rows(before.report, after.report), None
    if "step_us" not in barred:
        before, after, span = _timed_alike(before, after, barred)
    both, alike_made = before.looked & after.looked, kind_of(before.report) == kind_of(after.report)
    old, new = before.report.findings, after.report.findings
    # of all parts: a report may join what an older one, or one of less code, held apart
    known, still = ({key for each in found for key in each.keys} for found in (old, new))
    appeared = [finding for finding in new if known.isdisjoint(finding.keys)]
    vanished = [finding for finding in old if still.isdisjoint(finding.keys)]

    def seen_by_both(finding: Finding) -> bool:
        return not both.isdisjoint(finding.codes) and (alike_made or finding.seen_on in REHEARSABLE)

    if not both:
        barred["findings"] = "no rule could be checked on both sides"
    return Comparison(
        before,
        after,
        None if "step_us" in barred else of_recordings(before.runs, after.runs),
        tuple(filter(seen_by_both, appeared)),
        tuple(filter(seen_by_both, vanished)),
        tuple(finding for finding in new if not known.isdisjoint(finding.keys)),
        tuple(finding for finding in (*appeared, *vanished) if not seen_by_both(finding)),
        barred,
        told,
        span,
    )


def _timed_alike(
    before: Side, after: Side, barred: dict[Row, str]
) -> tuple[Side, Side, tuple[int, int] | None]:
    """Both sides with the steps that both timed; without common steps, ``barred`` says why."""
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


# -- in what two audits can be compared ------------------------------------------------------------


Row = Literal["step_us", "device_bytes", "host_bytes", "syncs", "findings"]
"""Rows of the table, by what they hold."""

NUMBERS: tuple[Row, ...] = ("step_us", "device_bytes", "host_bytes", "syncs")

LIVE = ("a run", "a rehearsal")
"""Kinds of audit that run a program: these may be compared with each other, by their findings."""

_FILES: dict[Input, str] = {"snapshot": "a memory snapshot", "checkpoint": "a scan of checkpoints"}

NO_TIMES = "a rehearsal gives no times and plays its device"


def kind_of(report: Report) -> str:
    """What was judged: ``a run``, ``a rehearsal``, ``a trace``, ``a memory snapshot`` ...."""
    run = report.run
    if device_named(run.device).simulated:
        return "a rehearsal"
    if (file := _FILES.get(input_named(run.device))) is not None:
        return file
    return "a run" if run.recorded_at or run.outcome != "completed" else "a trace"


def refusal(before: Report, after: Report) -> str:
    """Why nothing in the two can be compared; empty if something can."""
    kinds = kind_of(before), kind_of(after)
    live = all(kind in LIVE for kind in kinds)
    if kinds[0] != kinds[1] and not live:
        return f"{kinds[0]} and {kinds[1]} have nothing that could be compared"
    if live and program_of(before.run.target) != program_of(after.run.target):
        return (
            f"{before.run.target} and {after.run.target} are different programs, whose steps are "
            "not the same work"
        )
    return ""


def program_of(target: str) -> str:
    """One name for each way to name a program: ``a/b.py:step`` and ``a.b:step``, ``a/b.py`` and
    ``-m a.b``.

    Of an absolute path only the file's name counts: two checkouts have the same program at two
    places.
    """
    file, _, attribute = target.removeprefix("-m ").strip().partition(":")
    if not file.endswith(".py") and os.sep not in file:
        file = file.replace(".", "/")
    file = file.removesuffix(".py")
    file = os.path.basename(file) if os.path.isabs(file) else os.path.normpath(file)
    return f"{file}:{attribute}"


def barred_rows(before: Report, after: Report) -> dict[Row, str]:
    """The reason for each row that cannot be compared, of two reports that are not refused."""
    barred: dict[Row, str] = {}
    for rows, reason in _bars(before, after):
        for row in rows:
            barred.setdefault(row, reason)
    return barred


def _bars(before: Report, after: Report) -> Iterator[tuple[tuple[Row, ...], str]]:
    one, other = before.run, after.run
    if kind_of(before) != kind_of(after):
        yield NUMBERS, NO_TIMES
    if one.device != other.device:
        yield NUMBERS, f"on {one.device} and on {other.device}"
    if one.world_size != other.world_size:
        yield NUMBERS, f"in {one.world_size} and in {other.world_size} processes"
    for rows, name, what in _MACHINE:
        values = [side.environment.get(name, "") for side in (before, after)]
        if all(values) and values[0] != values[1]:
            yield rows, f"{what} {values[0]} and {values[1]}"
    if (one.steps, one.warmup) != (other.steps, other.warmup):
        steps = (
            f"{one.steps} steps after {one.warmup} and {other.steps} after {other.warmup} of "
            "warm-up"
        )
        yield ("device_bytes", "host_bytes", "syncs"), steps
    if one.outcome != other.outcome:
        yield ("device_bytes", "host_bytes", "syncs"), "one of the two ended early"


_MACHINE: tuple[tuple[tuple[Row, ...], str, str], ...] = (
    (("step_us", "device_bytes"), "device", "on other devices:"),
    (("step_us",), "processor", "on other processors:"),
    (("step_us",), "torch_threads", "numbers of threads:"),
)
"""Facts of the environment, the rows that lean on them, and how a difference is said."""


def _other_differences(before: Side, after: Side) -> Iterator[str]:
    """What else differs, a sentence each."""
    one, other = before.report.run, after.report.run
    auditors = (side.report.tool.get("version", "") for side in (before, after))
    versions = (
        ("torch", one.torch, other.torch),
        ("python", one.python, other.python),
        ("torch-step-audit", *auditors),
    )
    for name, old, new in versions:
        if old != new and old and new:
            yield f"the two differ in their {name}, {old} and {new}: a difference may come from that"
    if (one.steps, one.warmup) != (other.steps, other.warmup):
        yield (
            f"{one.steps} steps were audited before and {other.steps} after: a rule that counts "
            "steps may find something new, or no longer, for that alone"
        )
    for side, run in (("first", one), ("second", other)):
        if run.outcome != "completed":
            yield (
                f"the {side} ended early ({run.outcome}): what it did not reach could not be found "
                "there"
            )
    if None not in (before.args, after.args) and before.args != after.args:
        own, others = (" ".join(side.args or ()) or "none" for side in (before, after))
        yield f"the target's own arguments differ, {own} and {others}: a difference may come from them"


def common(
    before: Sequence[RunTimes], after: Sequence[RunTimes]
) -> tuple[tuple[RunTimes, ...], tuple[RunTimes, ...], tuple[int, int] | None]:
    """Both sides cut to the steps that all of their runs timed, counted from the program's
    beginning.

    The third is the first and the last of them (0-based) where something was cut off, else None.
    Fewer than ``FEWEST_BATCHES`` (5) steps in common do not count: both sides are empty then.
    """
    runs = (*before, *after)
    spans = {(run.first, run.first + len(run.us)) for run in runs}
    if len(spans) < 2:
        return tuple(before), tuple(after), None
    first, end = max(begin for begin, _ in spans), min(end for _, end in spans)
    if end - first < FEWEST_BATCHES:
        return (), (), (first, end - 1)
    cut = [
        replace(run, us=run.us[first - run.first : end - run.first], first=first) for run in runs
    ]
    return tuple(cut[: len(before)]), tuple(cut[len(before) :]), (first, end - 1)
