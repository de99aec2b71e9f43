"""How many loader processes pay: the target run with each number in turn, instead of a rule of thumb."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from auditor import patch
from auditor.model import Finding, Remedy, Verified
from auditor.plan import Loaders
from auditor.recording import Recording
from auditor.verify.intervals import LEAST_PAIRS, Interval, of_pairs
from auditor.verify.results import agree
from auditor.verify.trials import Measured

CODE = "DATA007"
MOST_WORKERS = 16
"""Numbers above are not tried, however many processors there are."""

CURVE = "step time by num_workers"

MOST_ROUNDS = 6
"""Rounds at most: what six pairs of runs do not show is not worth more."""


class Laboratory(Protocol):
    """Makes runs with so many workers; see :class:`auditor.verify.trials.Laboratory`."""

    def run(self, *, loaders: Loaders) -> Measured:
        """One run."""


@dataclass(frozen=True)
class Searched:
    """A finding after the search: with the curve among its facts and, where one is proven, the best number proposed."""

    finding: Finding
    note: str


@dataclass(frozen=True)
class Tried:
    """One number of workers: step times (us) of its runs, in rounds, and their ratio to the present number's."""

    workers: int
    step_us: tuple[float, ...]
    interval: Interval | None

    def __str__(self) -> str:
        said = f"{median(self.step_us) / 1000:.2f} ms"
        return (
            said
            if self.interval is None
            else f"{said} ({self.interval.ratio:.2f} [{self.interval.low:.2f} - {self.interval.high:.2f}])"
        )


def loader_of(finding: Finding, recording: Recording) -> Loaders | None:
    """The loaders that a finding of ``DATA007`` is about, as they are; None where another number cannot be tried.

    An iterable dataset gives each worker all of the data unless it was written for them: there the number is not ours to change.
    """
    if finding.code != CODE or finding.seen_on not in ("cpu", "cuda") or finding.site is None:
        return None
    for row in recording.rows("loaders"):
        made_at = row.get("made_at")
        if made_at is None or row.get("length") is None:
            continue
        site = recording.site(made_at)
        if (site.file, site.line) == (finding.site.file, finding.site.line):
            return Loaders(site.file, site.line, int(row["workers"]))
    return None


def numbers(present: int, processors: int | None = None) -> tuple[int, ...]:
    """The grid: 0 and powers of two up to the processors that may be used, and the present number, which comes first."""
    most = min(MOST_WORKERS, processors or _processors())
    powers = (1 << power for power in range(MOST_WORKERS.bit_length()))
    return (present, *(number for number in (0, *powers) if number <= most and number != present))


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def search(
    laboratory: Laboratory, finding: Finding, present: Loaders, deadline: float, say: Callable[[str], None]
) -> Searched | None:
    """Run rounds of all numbers until ``deadline`` (``time.monotonic``); None where not even one round fits or the target fails."""
    grid, runs = list(numbers(present.workers)), dict[int, list[Measured]]()
    seconds = 0.0
    for number in range(MOST_ROUNDS):
        if time.monotonic() + seconds * len(grid) > deadline:
            break
        began = time.monotonic()
        for workers in grid if number % 2 == 0 else grid[::-1]:
            say(f"{finding.code} {finding.site}: num_workers={workers}")
            runs.setdefault(workers, []).append(laboratory.run(loaders=replace(present, workers=workers)))
        seconds = (time.monotonic() - began) / len(grid)
        grid = [workers for workers in grid if _worked(runs[workers])]
        if present.workers not in grid:
            return None
    if not runs:
        return None
    curve = [_tried(workers, runs[workers], runs[present.workers]) for workers in sorted(grid)]
    return _said(finding, present, curve, runs)


def _worked(runs: Iterable[Measured]) -> bool:
    return all(not run.failed and run.step_us for run in runs)


def _tried(workers: int, runs: Sequence[Measured], present: Sequence[Measured]) -> Tried:
    times = tuple(run.step_us or 0.0 for run in runs)
    interval = of_pairs([run.step_us or 0.0 for run in present], times) if runs is not present else None
    return Tried(workers, times, interval)


def _said(finding: Finding, present: Loaders, curve: Sequence[Tried], runs: dict[int, list[Measured]]) -> Searched:
    rounds = len(runs[present.workers])
    proven = [each for each in curve if each.interval is not None and each.interval.high < 1.0]
    best = min(proven, key=lambda each: median(each.step_us), default=None)
    told = ", ".join(f"{each.workers}{' (now)' if each.workers == present.workers else ''}: {each}" for each in curve)
    failed = [f"{workers}: fails, {done[-1].failed}" for workers, done in sorted(runs.items()) if not _worked(done)]
    known = tuple(fact for fact in finding.facts if not fact[0].startswith(CURVE))  # without an earlier search's
    facts = (
        *known,
        (f"{CURVE}, {rounds} round{'s' * (rounds != 1)}", "; ".join([told, *failed])),
    )
    if best is None:
        why = (
            "no other number is proven faster"
            if rounds >= LEAST_PAIRS
            else f"the budget was spent after {rounds} of {LEAST_PAIRS} rounds"
        )
        note = f"{finding.code} {finding.site}: {CURVE}: {told}; {why}"
        return Searched(replace(finding, facts=facts), note)
    verified = _verified(runs[present.workers], runs[best.workers], best)
    changed = replace(finding, facts=facts, verified=verified, remedy=_proposing(finding.remedy, best.workers))
    return Searched(changed, f"{finding.code} {finding.site}: {CURVE}: {told}; {best.workers} is the best")


def _verified(before: Sequence[Measured], after: Sequence[Measured], best: Tried) -> Verified:
    interval = best.interval
    assert interval is not None
    agreements = [agree(one.results, other.results) for one, other in zip(before, after, strict=True)]
    repeated = all(agree(before[0].results, run.results).same for run in before)
    comparable = repeated and before[0].results.any
    same = all(each.same for each in agreements) if comparable else None
    return Verified(
        status="better",
        step_us_before=median(run.step_us or 0.0 for run in before),
        step_us_after=median(best.step_us),
        ratio=interval.ratio,
        ratio_low=interval.low,
        ratio_high=interval.high,
        peak_bytes_before=None,
        peak_bytes_after=None,
        same_result=same,
        pairs=len(before),
        note=f"num_workers={best.workers}, the best of those tried" + (f"; {agreements[0].note}" if comparable else ""),
    )


def _proposing(remedy: Remedy | None, workers: int) -> Remedy:
    """The remedy with the number that was measured, in its patch as well."""
    remedy = remedy or Remedy("")
    edits = tuple(replace(edit, value=str(workers)) if edit.keyword == "num_workers" else edit for edit in remedy.edits)
    text = f"num_workers={workers} was the fastest of those tried. {remedy.text}".strip()
    return replace(remedy, text=text, edits=edits, config={**(remedy.config or {}), "num_workers": str(workers)})


def with_diff(finding: Finding, recording: Recording) -> Finding:
    """The finding with the diff of its edits as they are now."""
    if finding.remedy is None or not finding.remedy.edits:
        return finding
    diff = patch.plan(finding.remedy.edits, recording.source_bytes).diff.decode("utf-8", "replace")
    return replace(finding, remedy=replace(finding.remedy, diff=diff or None))
