"""The run on the null device beside a rehearsal: whether it went the same way, and what torch's own
CUDA code asked of the device, line by line.

Nothing is computed on a null device, so that values are zeros there, but for the scalar reads that
were told what the rehearsal read. Where a branch on a value takes another way, or the size of a
result depends on values, what comes after says nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from auditor.evidence.table import Evidence
from auditor.model import Site
from auditor.recordings.schema.run import StepRow
from auditor.recordings.schema.sync import CallRow, CopyRow, CourseRow, DeviceWorkRow, ReadRow

FOLDER, REHEARSAL = "null", "rehearsal"

Line = tuple[str, int]
"""File as findings show it, and line."""


@dataclass(frozen=True)
class Parting:
    """The first difference: in ``step`` of the run the null device went on at ``null`` where the
    rehearsal went on at ``shadow`` (None: at neither line of the user's), after ``after``.
    """

    step: int
    after: Site | None
    shadow: Site | None
    null: Site | None

    @property
    def sentence(self) -> str:
        """For the report."""
        there = f" after {self.after.file}:{self.after.line}" if self.after else ""
        return (
            f"on the null device, where values are zeros, the program took another path in step "
            f"{self.step}{there}: on to {_place(self.null)}, in the rehearsal to "
            f"{_place(self.shadow)}; nothing is judged from there on"
        )


@dataclass(frozen=True)
class DeviceRequests:
    """What a line asked of the device in the judged steps."""

    site: Site
    launches: int = 0
    waits: int = 0
    waited_on: frozenset[int] = frozenset()
    """Steps of the diagnostic pass on which the host waited for the device there."""
    calls: frozenset[str] = frozenset()


@dataclass(frozen=True)
class NullRun:
    """A run on the null device as it can be judged. ``steps`` of its diagnostic pass went the
    rehearsal's way; ``memory`` is its evidence where all steps did.
    """

    evidence: Evidence
    steps: int
    compared: int
    parting: Parting | None
    sized: tuple[Site, ...]
    """Lines whose results have sizes that depend on values: none is right on zeros."""
    answered: int
    reads: int
    lines: Mapping[Line, DeviceRequests] = field(default_factory=dict)

    @property
    def memory(self) -> Evidence | None:
        """Evidence of torch's own allocator, where no step took another way or another size."""
        whole = self.compared and self.parting is None and not self.sized
        return self.evidence if whole else None

    @property
    def launches(self) -> float:
        """Kernels in each judged step."""
        return sum(line.launches for line in self.lines.values()) / max(1, self.steps)

    @property
    def busiest(self) -> DeviceRequests | None:
        """The line that launches most."""
        return max(self.lines.values(), key=lambda line: line.launches, default=None)


def null_run(evidence: Evidence) -> NullRun | None:
    """Of a recording, its run on the null device; None without one, or its rehearsal."""
    null = evidence.inside(FOLDER)
    shadow = evidence if evidence.recording.device.shadow else evidence.inside(REHEARSAL)
    if null is None or shadow is None or not null.recording.device.null:
        return None
    ways, theirs = _ways(null), _ways(shadow)
    common = sorted(ways.keys() & theirs.keys())
    parting = next(
        (found for step in common if (found := _parting(step, theirs[step], ways[step]))), None
    )
    until = parting.step if parting is not None else max(ways, default=-1) + 1
    rows = [row for row in null.rows(CourseRow) if row.global_step < until]
    sized = {null.recording.site(at) for row in rows for at in row.sized}
    first = null.recording.run_step("loud", 0)
    judged = {row.step for row in null.rows(StepRow) if row.pass_name == "loud"}
    judged = {step for step in judged if first + step < until}
    return NullRun(
        null,
        len(judged),
        len(common),
        parting,
        tuple(sorted(sized, key=lambda site: site.place)),
        sum(row.answered for row in rows),
        sum(len(row.read) for row in rows),
        _lines(null, judged),
    )


def unseen_waits(
    run: NullRun, evidence: Evidence, share: float = 0.5
) -> tuple[DeviceRequests, ...]:
    """Lines where torch's own code waited, on that share of steps, and the rehearsal saw none."""
    shadow = evidence if evidence.recording.device.shadow else evidence.inside(REHEARSAL)
    if shadow is None or not run.steps:
        return ()
    places = [row.at for row in shadow.rows(ReadRow)]
    places += [row.at for row in shadow.rows(CopyRow)]
    places += [row.at for row in shadow.rows(CallRow)]
    seen = {shadow.recording.site(at).place for at in places}
    found = [
        asked
        for line, asked in run.lines.items()
        if line not in seen and len(asked.waited_on) >= share * run.steps
    ]
    return tuple(sorted(found, key=lambda asked: asked.site.place))


def _place(site: Site | None) -> str:
    return f"{site.file}:{site.line}" if site is not None else "the step's end"


def _ways(evidence: Evidence) -> dict[int, list[Site]]:
    """Lines of each step of the run in order, each once for operators in a row."""
    found: dict[int, list[Site]] = {}
    for row in evidence.rows(CourseRow):
        way = found.setdefault(row.global_step, [])
        for at in row.places:
            site = evidence.recording.site(at)
            if not way or way[-1].place != site.place:
                way.append(site)
    return found


def _parting(step: int, shadow: list[Site], null: list[Site]) -> Parting | None:
    before: Site | None = None
    for theirs, ours in zip_longest(shadow, null):
        if theirs is None or ours is None or theirs.place != ours.place:
            return Parting(step, before, theirs, ours)
        before = theirs
    return None


def _lines(null: Evidence, judged: set[int]) -> dict[Line, DeviceRequests]:
    rows: dict[Line, list[DeviceWorkRow]] = {}
    sites: dict[Line, Site] = {}
    for row in null.rows(DeviceWorkRow):
        if row.at is None or row.step not in judged:
            continue
        site = null.recording.site(row.at)
        sites.setdefault(site.place, site)
        rows.setdefault(site.place, []).append(row)
    return {
        line: DeviceRequests(
            sites[line],
            sum(row.launches for row in here),
            sum(row.waits for row in here),
            frozenset(row.step for row in here if row.waits),
            frozenset(call for row in here if row.waits for call in row.calls),
        )
        for line, here in rows.items()
    }
