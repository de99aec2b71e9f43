"""Lines of the user's that do something in the step: on which steps, how often, how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from auditor import amounts
from auditor.batch_means import Estimate, mean_of
from auditor.evidence.recorded.step_pattern import StepPattern, counted_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import loop_around
from auditor.evidence.table import Evidence, Rows, Table, by_line
from auditor.model import Site
from auditor.recordings.row import CalledRow, LineRow

R = TypeVar("R", bound=LineRow)
C = TypeVar("C", bound=CalledRow)


@dataclass(frozen=True)
class Line(Generic[R]):
    """A line, and its rows of the ``steps`` steps of one pass."""

    site: Site
    rows: tuple[R, ...]
    steps: int
    pass_name: str = "loud"

    @cached_property
    def pattern(self) -> StepPattern:
        """On which steps it does it."""
        return counted_pattern(((row.step, row.n) for row in self.rows), self.steps)

    @property
    def n(self) -> int:
        """How often in all."""
        return sum(row.n for row in self.rows)

    @property
    def per_step(self) -> float:
        """How often in each step, on average."""
        return self.pattern.mean((row.step, row.n) for row in self.rows)

    @property
    def us(self) -> float:
        """Host time inside all of it, in us."""
        return sum(row.us for row in self.rows)

    @property
    def us_per_step(self) -> float:
        """The time, averaged over all steps of the pass."""
        return self.us / self.steps if self.steps else 0.0

    @property
    def price(self) -> Estimate | None:
        """``us_per_step`` with its interval; None of too few steps, or a pass with instruments."""
        if self.pass_name != "quiet":
            return None
        us = [0.0] * self.steps
        for row in self.rows:
            us[row.step] += row.us
        return mean_of(us)

    @property
    def told(self) -> dict[str, Any]:
        """Fields of a finding about it that it knows by itself."""
        return {}

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        if self.pass_name != "quiet":  # instruments are in the time
            return ()
        return (("host time", f"{amounts.duration(self.us_per_step)} per step"),)


class Lines(Rows[R]):
    """Rows of one type of the steps that completed, in the first pass that has any and counts them:
    ``detect(self, calls: Lines[CallRow])``.
    """

    parts: ClassVar[tuple[str, ...]] = ("steps",)

    def __init__(
        self,
        rows: Iterable[R] = (),
        steps: int = 0,
        pass_name: str = "quiet",  # noqa: S107  # nosec B107
        step_us: float = 0.0,
    ) -> None:
        super().__init__(row for row in rows if row.step < steps)
        self.steps = steps
        self.pass_name = pass_name
        self.step_us = step_us
        """Time of these steps together, waiting for a processor left out."""

    @classmethod
    def build(cls, evidence: Evidence) -> Self:
        """From that pass."""
        passes, kind, places = evidence.get(Steps), cast("type[R]", cls.kind), evidence.recording
        name = next((each for each in kind.passes if passes.of(each)), kind.passes[-1])
        steps = passes.of(name)
        return cls(
            (row.read_from(places) for row in evidence.rows(kind) if row.pass_name == name),
            len(steps),
            name,
            sum(step.own_us for step in steps),
        )

    def lines(self, wanted: Callable[[R], object] = lambda row: True) -> Iterator[Line[R]]:
        """Lines with rows that are wanted, by file and line."""
        for rows in by_line(row for row in self if wanted(row)):
            yield Line(rows[0].site, tuple(rows), self.steps, self.pass_name)


@dataclass(frozen=True)
class TrainingLoop(Table):
    """Which calls of the program are in its training loop. ``one_step``: the target is one step."""

    source: Source = field(default_factory=Source)
    one_step: bool = False

    @classmethod
    def build(cls, evidence: Evidence) -> TrainingLoop:
        """From the manifest and the recorded files."""
        kind = evidence.recording.manifest.get("kind")
        return cls(evidence.get(Source), kind == "callable")

    def call_of(self, line: Line[C]) -> Site | None:
        """The call in the loop from which most of the line's work came; None if it stands there."""
        times: Counter[Site | None] = Counter()
        for row in line.rows:
            times[self._call([row.home.site(number) for number in row.stack[:-1]])] += row.n
        return max(times, key=lambda site: times[site])

    def _call(self, around: Sequence[Site]) -> Site | None:
        """Of the calls around a line: a whole step's outermost, else the innermost in a loop."""
        if self.one_step:
            return around[0] if around else None
        looped = (call for call in reversed(around) if loop_around(self.source, call) is not None)
        return next(looped, None)
