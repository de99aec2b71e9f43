"""What ``torch.compile`` did: graphs that are broken, functions that it compiled again and again."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.model.sections import Compilation, CompiledPart, Gain
from auditor.recordings.schema.run import CompileRow, RegionRow, RegionRunRow, StepRow
from auditor.rule import NotLooked

UNDISTURBED = ("warmup", "quiet", "anomaly_off")
"""Passes in which no instrument of ours causes a recompilation."""

DONE = ("compile", "backward")
"""Rows of work that was done."""

FIXED = "dynamic=False"
"""As ``regions`` has it among the options."""

_NUMBER = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(?:\.\d+)?(?:e-?\d+)?")


@dataclass(frozen=True)
class Break:
    """A line that breaks the graph of ``function``, also as it was compiled last."""

    site: Site
    function: str
    reason: str
    gb: str
    own: bool
    lost: bool = False
    """No graph can end there, and the whole function, which was given to the compiler, is left to
    Python. The line is the function's own, also where a library's was named.
    """


@dataclass(frozen=True)
class Recompiled:
    """Compilations of one function for one guard that failed, at one line, on ``steps``.

    ``guard`` is what failed last; ``us`` is the time of all of them, backwards included. ``limit``:
    the last was one too many, and the function runs eagerly since; ``since`` is the step of the
    timing pass in which that happened, None if it was in another pass.
    """

    site: Site
    function: str
    guard: str
    n: int
    steps: int
    us: float
    own: bool
    limit: bool
    since: int | None = None


@dataclass(frozen=True)
class Compiles(Table):
    """What was compiled in the passes that nothing of ours disturbs."""

    parts: ClassVar[tuple[str, ...]] = ("compiles", "regions")

    breaks: tuple[Break, ...] = ()
    recompiled: tuple[Recompiled, ...] = ()
    compiled: int = 0
    """Frames that were compiled, each counted as often as it was."""
    us: float = 0.0
    """Time of all compilations."""
    fixed: tuple[Site, ...] = ()
    """Lines that compile with ``dynamic=False``: each length is compiled for itself."""

    @classmethod
    def build(cls, evidence: Evidence) -> Compiles:
        """From the rows of these passes."""
        rows = [row for row in rows_of(evidence, CompileRow) if row.pass_name in UNDISTURBED]
        regions = evidence.rows(RegionRow)
        if not rows and not regions:
            raise NotLooked("the program compiles nothing (torch.compile)")
        done = [row for row in rows if row.what in DONE]
        return cls(
            tuple(_breaks(evidence, rows)),
            tuple(_recompiled(evidence, rows)),
            sum(1 for row in done if row.what == "compile"),
            sum(row.us for row in done),
            _lines(evidence, lambda row: FIXED in row.options.split(", ")),
        )


def _lines(evidence: Evidence, wanted: Callable[[RegionRow], bool]) -> tuple[Site, ...]:
    at = (row.at for row in evidence.rows(RegionRow) if wanted(row))
    return tuple(dict.fromkeys(evidence.recording.site(each) for each in at if each is not None))


def _breaks(evidence: Evidence, rows: Sequence[CompileRow]) -> Iterator[Break]:
    """One for each line: those of a frame's last compilation, as earlier ones may be unused."""
    last = {row.frame: row.attempt for row in rows if row.what == "compile"}
    given = {row.what for row in evidence.rows(RegionRow)}
    found: dict[tuple[str, int], list[CompileRow]] = {}
    for row in rows:
        if row.what != "break" or row.at is None or row.attempt != last.get(row.frame, row.attempt):
            continue
        site = evidence.recording.site(_break_at(row, row.at, given))
        found.setdefault((site.file, site.line), []).append(row)
    for each in found.values():
        row = each[0]
        site = evidence.recording.site(_break_at(row, row.at, given))  # type: ignore[arg-type]
        gone = _is_lost(row, given)
        yield Break(site, row.function, row.reason, row.gb, row.own, gone)


def _is_lost(row: CompileRow, given: Collection[str]) -> bool:
    return row.lost and row.function in given


def _break_at(row: CompileRow, at: int, given: Collection[str]) -> int:
    own = row.own or not _is_lost(row, given)
    return at if own or row.resumed is None else row.resumed


def _recompiled(evidence: Evidence, rows: Sequence[CompileRow]) -> Iterator[Recompiled]:
    us: defaultdict[tuple[str, int], float] = defaultdict(float)
    for row in rows:
        if row.what in DONE:
            us[row.frame, row.attempt] += row.us
    limits = {row.frame for row in rows if row.what == "limit"}
    groups: dict[tuple[str, int, str], list[CompileRow]] = {}
    given = {row.what for row in evidence.rows(RegionRow)}
    only = given.pop() if len(given) == 1 else ""
    for row in rows:
        if row.what == "recompile" and row.at is not None:
            key = row.frame, row.at, _NUMBER.sub("N", row.reason)
            groups.setdefault(key, []).append(row)
    for (frame, at, _), each in groups.items():
        led = frame in limits and _led_to(rows, frame, each)
        yield Recompiled(
            site=evidence.recording.site(at),
            function=next((row.function for row in each if row.function), only),
            guard=each[-1].reason,
            n=len(each),
            steps=len({(row.pass_name, row.step) for row in each}),
            us=sum(us[frame, row.attempt] for row in each),
            own=each[-1].own,
            limit=led,
            since=_since(rows, frame) if led else None,
        )


def _since(rows: Sequence[CompileRow], frame: str) -> int | None:
    reached = [row for row in rows if row.what == "limit" and row.frame == frame]
    return reached[0].step if reached[0].pass_name == "quiet" else None


def _led_to(rows: Sequence[CompileRow], frame: str, group: Sequence[CompileRow]) -> bool:
    reached = {row.attempt for row in rows if row.what == "limit" and row.frame == frame}
    return any(row.attempt in reached for row in group)


# -- compiled regions ------------------------------------------------------------------------------
# What the program gave to ``torch.compile``, and what became of it.


@dataclass(frozen=True)
class Region:
    """A call of ``torch.compile``, or those of one line inside the steps.

    ``steps`` are those in which what it gave ran, of ``watched`` that passed since; ``made_on`` is
    the number of steps that called it themselves, ``us`` the time of these calls on average.
    ``torchs``: it is a module whose ``forward`` is torch's own. ``called``: it ran at least once, in a step or before the first. ``trained``: it is a module
    whose parameters were written to meanwhile. ``dropped``: nobody holds what it gave.
    """

    site: Site
    what: str
    options: str = ""
    method: bool = False
    torchs: bool = False
    steps: int = 0
    watched: int = 0
    called: bool = False
    trained: bool = False
    dropped: bool = False
    made_on: int = 0
    us: float = 0.0


@dataclass(frozen=True)
class CompiledRegions(Table):
    """In the order in which they were made; those that steps make last, one for each line."""

    parts: ClassVar[tuple[str, ...]] = ("regions", "region_runs", "steps")

    regions: tuple[Region, ...] = ()
    """Made before a step, or between two."""
    in_steps: tuple[Region, ...] = ()
    """Made inside a step, in a pass that nothing of ours disturbs."""

    @classmethod
    def build(cls, evidence: Evidence) -> CompiledRegions:
        """From the rows of all passes."""
        rows = rows_of(evidence, RegionRow)
        if not rows:
            raise NotLooked("the program compiles nothing (torch.compile)")
        runs: dict[int, list[RegionRunRow]] = {}
        for run in rows_of(evidence, RegionRunRow):
            runs.setdefault(run.number, []).append(run)
        taken = Counter(row.pass_name for row in rows_of(evidence, StepRow))
        before = tuple(
            _before(evidence, row, runs[row.number], taken)
            for row in rows
            if not row.in_step and row.at is not None and row.number in runs
        )
        inside: dict[int, list[RegionRow]] = {}
        for made in rows:
            if made.in_step and made.at is not None and made.pass_name in UNDISTURBED:
                inside.setdefault(made.at, []).append(made)
        return cls(before, tuple(_inside(evidence, at, each) for at, each in inside.items()))

    @property
    def ran(self) -> bool:
        """True if anything that was compiled before the steps ran in one of them."""
        return any(each.steps for each in self.regions)


def _before(
    evidence: Evidence, row: RegionRow, runs: list[RegionRunRow], taken: Counter[str]
) -> Region:
    dropped = any(each.dropped for each in runs)
    passes = set(taken) if dropped else {each.pass_name for each in runs}
    return Region(
        site=evidence.recording.site(row.at),  # type: ignore[arg-type]
        what=row.what,
        options=row.options,
        method=row.method,
        torchs=row.torchs,
        steps=sum(each.steps for each in runs),
        watched=sum(taken[name] for name in passes),
        called=any(each.called for each in runs),
        trained=any(each.trained for each in runs),
        dropped=dropped,
    )


def _inside(evidence: Evidence, at: int, rows: list[RegionRow]) -> Region:
    return Region(
        site=evidence.recording.site(at),
        what=rows[-1].what,
        options=rows[-1].options,
        method=rows[-1].method,
        made_on=len({(row.pass_name, row.step) for row in rows}),
        us=sum(row.us for row in rows) / len(rows),
    )


# -- compilation -----------------------------------------------------------------------------------
# What ``torch.compile`` did, for the report.


PARTS = 50
"""Functions and modules that a report lists."""


def compilation(evidence: Evidence) -> Compilation | None:
    """None if the program gives nothing to ``torch.compile``, or nothing is known of it."""
    if not all(map(evidence.has, {*Compiles.parts, *CompiledRegions.parts})):
        return None
    try:
        compiles, regions = evidence.get(Compiles), evidence.get(CompiledRegions)
    except NotLooked:
        return None
    steps = evidence.get(Steps)
    return Compilation(
        compiled=compiles.compiled,
        us=compiles.us,
        again=sum(each.n for each in compiles.recompiled),
        breaks=len(compiles.breaks),
        during=sum(1 for step in steps.quiet if step.compiles),
        parts=tuple(_part(each) for each in (*regions.regions, *regions.in_steps)[:PARTS]),
        gain=_gain(steps),
    )


def _part(region: Region) -> CompiledPart:
    steps = region.steps or region.made_on
    watched = max(steps, region.watched)
    return CompiledPart(region.site, region.what, region.options, steps, watched)


def _gain(steps: Steps) -> Gain | None:
    gained = steps.gained_by_compile()
    if gained is None:
        return None
    return Gain(gained.value, gained.low, gained.high, median(own_times(steps.eager_held)))
