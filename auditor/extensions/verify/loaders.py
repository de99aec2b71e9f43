"""Which arguments of a DataLoader pay: the target run with each of a few values in turn, instead of
a rule of thumb.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from auditor import amounts, patch
from auditor.extensions.verify.budget import Budget
from auditor.extensions.verify.intervals import LEAST_PAIRS
from auditor.extensions.verify.results import Agreement, agree
from auditor.extensions.verify.search import AS_IT_IS, Grid, Setting
from auditor.extensions.verify.trials import Measured
from auditor.model import Finding, Remedy
from auditor.model.verification import Verified
from auditor.recordings.folder import Recording
from auditor.recordings.schema import LoaderRow
from auditor.runs.plan import Loaders

CODE = "DATA007"
MOST_WORKERS = 16
"""Numbers above are not tried, however many processors there are."""

PREFETCHED = (2, 4, 8)
"""Batches that each worker may be ahead: torch's default, and more for batches that take unequally
long.
"""

CURVE = "step time by "


class Laboratory(Protocol):
    """Makes runs with other arguments of the loaders; see
    :class:`auditor.extensions.verify.trials.Laboratory`.
    """

    def run(self, *, loaders: Loaders) -> Measured:
        """One run."""


@dataclass(frozen=True)
class Present:
    """The loaders that are made at a line, with their arguments as they are."""

    file: str
    line: int
    workers: int
    prefetch: int = 2
    persistent: bool = False

    def values(self, setting: Setting) -> dict[str, int]:
        """The arguments that are searched, under a setting."""
        mine = {
            "num_workers": self.workers,
            "prefetch_factor": self.prefetch,
            "persistent_workers": self.persistent,
        }
        return {**mine, **dict(setting)}


def loader_of(finding: Finding, recording: Recording) -> Present | None:
    """The loaders that a finding of ``DATA007`` is about, as they are; None where others cannot be
    tried. Where the finding is at the line that makes loading slow, a fact of it names theirs.

    An iterable dataset gives each worker all of the data unless it was written for them: there the
    number is not ours to change.
    """
    if finding.code != CODE or finding.seen_on not in ("cpu", "cuda") or finding.site is None:
        return None
    made_at = dict(finding.facts).get("loader", str(finding.site))
    for row in recording.rows(LoaderRow):
        if row.made_at is None or row.length is None:
            continue
        site = recording.site(row.made_at)
        if str(site) == made_at:
            return Present(
                site.file, site.line, row.workers, row.prefetch or 2, bool(row.persistent)
            )
    return None


# -- what is tried ---------------------------------------------------------------------------------


def numbers(present: int, processors: int | None = None) -> tuple[int, ...]:
    """Other numbers of workers than the present one: 0 and powers of two, up to the processors that
    may be used.
    """
    most = min(MOST_WORKERS, processors or _processors())
    powers = (1 << power for power in range(MOST_WORKERS.bit_length()))
    return tuple(number for number in (0, *powers) if number <= most and number != present)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _workers(present: Present, best: Setting) -> Iterator[Setting]:
    for number in numbers(present.workers):
        stay = (
            {"persistent_workers": 1} if number and not present.workers else {}
        )  # as the rule's own patch has it
        yield tuple({**dict(best), "num_workers": number, **stay}.items())


def _prefetch(present: Present, best: Setting) -> Iterator[Setting]:
    values = present.values(best)
    if values["num_workers"]:
        yield from (
            (*best, ("prefetch_factor", number))
            for number in PREFETCHED
            if number != values["prefetch_factor"]
        )


def _persistent(present: Present, best: Setting) -> Iterator[Setting]:
    values = present.values(best)
    if values["num_workers"] and not values["persistent_workers"]:
        yield (*best, ("persistent_workers", 1))


ARGUMENTS: dict[str, Callable[[Present, Setting], Iterator[Setting]]] = {
    "num_workers": _workers,
    "prefetch_factor": _prefetch,
    "persistent_workers": _persistent,
}
"""What is searched, one after the other, each from the best found so far. ``pin_memory`` is a patch
of its own (DATA003).
"""


def values_to_try(present: Present) -> int:
    """How many settings the first argument has: what a search takes at least, for the planning of
    the budget.
    """
    return 1 + len(numbers(present.workers))


# -- the search ------------------------------------------------------------------------------------


def search(
    laboratory: Laboratory,
    finding: Finding,
    present: Present,
    budget: Budget,
    say: Callable[[str], None],
) -> tuple[Finding, str]:
    """The finding with the curves among its facts and, where one is proven, the best values
    proposed; and what came out.
    """

    def run(setting: Setting) -> Measured:
        say(f"{finding.code} {finding.site}: {_called(setting) or 'as it is'}")
        return laboratory.run(loaders=Loaders(present.file, present.line, dict(setting)))

    best, proof, curves, rounds = AS_IT_IS, None, dict[str, str](), LEAST_PAIRS
    for name, settings in ARGUMENTS.items():
        grid = Grid(tuple(dict.fromkeys((AS_IT_IS, best))), tuple(settings(present, best)), run)
        grid.measure(budget)
        if not grid.rounds:
            continue
        if not grid.works(AS_IT_IS):
            return (
                finding,
                (
                    f"{finding.code} {finding.site}: run again, the target fails: "
                    f"{grid.runs[AS_IT_IS][-1].failed}"
                ),
            )
        rounds = min(rounds, grid.rounds)
        curves[f"{CURVE}{name}, {grid.rounds} round{'s' * (grid.rounds != 1)}"] = _curve(
            name, present, grid, best
        )
        better = grid.fastest()
        best, proof = (best, proof) if better is None else (better, grid)
    if not curves:
        return finding, f"{finding.code} {finding.site}: not tried, the budget was spent before"
    told = "; ".join(f"{label}: {curve}" for label, curve in curves.items())
    known = tuple(
        fact for fact in finding.facts if not fact[0].startswith(CURVE)
    )  # without an earlier search's
    found = replace(finding, facts=(*known, *curves.items()))
    if proof is None and finding.verified is not None and rounds < LEAST_PAIRS:
        return (
            finding,
            f"{finding.code} {finding.site}: {told}; what an earlier search proved stays",
        )
    if proof is None:
        return replace(
            found, verified=None
        ), f"{finding.code} {finding.site}: {told}; none is proven faster"
    changed = replace(found, verified=_verified(proof, best), remedy=_proposing(finding, best))
    return changed, f"{finding.code} {finding.site}: {told}; {_called(best)} is the best"


def _called(setting: Setting) -> str:
    return ", ".join(f"{name}={_value(name, value)}" for name, value in setting)


def _value(name: str, value: int) -> str:
    return str(bool(value)) if name == "persistent_workers" else str(value)


def _curve(name: str, present: Present, grid: Grid, best: Setting) -> str:
    """The step times by the values of one argument, each with its ratio to what was best before."""
    settings = [setting for setting in grid.runs if setting != AS_IT_IS or best == AS_IT_IS]
    told = []
    for setting in sorted(settings, key=lambda each: present.values(each)[name]):
        value = (
            f"{_value(name, present.values(setting)[name])}{' (now)' if setting == best else ''}"
        )
        told.append(f"{value}: {_time(grid, setting, best)}")
    few = (
        f"; the budget was spent after {grid.rounds} of {LEAST_PAIRS} rounds"
        if grid.rounds < LEAST_PAIRS
        else ""
    )
    return "; ".join(told) + few


def _time(grid: Grid, setting: Setting, best: Setting) -> str:
    if not grid.works(setting):
        return f"fails, {grid.runs[setting][-1].failed}"
    interval = grid.interval(setting, best) if setting != best else None
    ratio = (
        f" ({interval.ratio:.2f} [{interval.low:.2f} - {interval.high:.2f}])"
        if interval is not None
        else ""
    )
    return f"{amounts.duration(grid.step_us(setting))}{ratio}"


# -- what is proposed ------------------------------------------------------------------------------


def _verified(grid: Grid, best: Setting) -> Verified:
    before, after = grid.runs[AS_IT_IS][: len(grid.runs[best])], grid.runs[best]
    agreements = [
        agree(one.results, other.results) for one, other in zip(before, after, strict=True)
    ]
    repeated = all(agree(before[0].results, run.results).same for run in before)
    comparable = repeated and before[0].results.any
    return replace(
        grid.proven(best),
        same_result=all(each.same for each in agreements) if comparable else None,
        note=f"{_called(best)}, the best of those tried"
        + (f"; {_compared(agreements)}" if comparable else ""),
    )


def _compared(agreements: Sequence[Agreement]) -> str:
    """How the results agree. Where they do not, that is no error: other processes load, and the
    order of the draws is another.
    """
    differing = next((each.note for each in agreements if not each.same), "")
    return (
        f"{differing}: with workers other random numbers are drawn, or in another order"
        if differing
        else agreements[0].note
    )


def _proposing(finding: Finding, best: Setting) -> Remedy:
    """The remedy with the values that were measured, in its patch as well, wherever that sets the
    number of workers.
    """
    remedy = finding.remedy or Remedy("")
    values = {name: _value(name, value) for name, value in best}
    number = values.get("num_workers", "")
    edits = [
        edit if edit.keyword == "persistent_workers" else replace(edit, value=number)
        for edit in remedy.edits
    ]
    own = next(
        (edit for edit in edits if edit.keyword == "num_workers" and edit.action == "set_keyword"),
        None,
    )
    if own is not None:
        missing = values.keys() - {edit.keyword for edit in edits}
        edits += [replace(own, keyword=name, value=values[name]) for name in sorted(missing)]
    text = f"{_called(best)} was the fastest of those tried. {remedy.text}".strip()
    return replace(
        remedy, text=text, edits=tuple(edits), config={**(remedy.config or {}), **values}
    )


def with_diff(finding: Finding, recording: Recording) -> Finding:
    """The finding with the diff of its edits as they are now."""
    if finding.remedy is None or not finding.remedy.edits:
        return finding
    diff = patch.plan(finding.remedy.edits, recording.source_bytes).diff.decode("utf-8", "replace")
    return replace(finding, remedy=replace(finding.remedy, diff=diff or None))
