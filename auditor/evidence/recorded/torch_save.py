"""Checkpoints that the step wrote while its times were taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from auditor.batch_means import Estimate, of_separate
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.recorded.timed_calls import CallingLine, most_called, of_quiet
from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import loop_around
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.recordings.schema.data import SaveRow
from auditor.rule import NotLooked


@dataclass(frozen=True)
class Save:
    """One call of ``torch.save``: ``us`` that it took, ``path`` that it wrote to (None: a buffer or
    an open file).

    ``replaced``: there was a file with something in it. ``size`` in bytes, None where it is not
    known.
    """

    site: Site
    step: int
    us: float
    path: str | None = None
    replaced: bool = False
    size: int | None = None
    called: Site | None = None
    """The call in the training loop that led to it; None where the line itself stands there."""
    compiled: str = ""
    """Name of a tensor in it that is named as in a compiled module."""
    n: ClassVar[int] = 1


@dataclass(frozen=True)
class SavingLine(CallingLine[Save]):
    """A line that saves, with all of its saves."""

    @property
    def compiled(self) -> str:
        """Name of a tensor that it saved under the name of a compiled module; empty: none seen."""
        return next((save.compiled for save in self.calls if save.compiled), "")

    @property
    def called(self) -> Site | None:
        """The call in the loop from which most of them came."""
        return most_called(self.calls)

    @property
    def price(self) -> Estimate | None:
        """Us of each step that saves take, with the interval over the saves; None of too few of
        them.
        """
        each = of_separate([save.us for save in self.calls])
        often = self.per_step
        return (
            None
            if each is None
            else Estimate(often * each.value, often * each.low, often * each.high)
        )


@dataclass(frozen=True)
class Saves(Table):
    """Saves of the quiet pass, whose ``steps`` took ``step_us`` together, waiting for a processor
    left out.
    """

    parts: ClassVar[tuple[str, ...]] = ("saves", "steps")

    steps: int = 0
    step_us: float = 0.0
    each: tuple[Save, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> Saves:
        """From the quiet pass; saves of a step that did not complete are left out."""
        quiet = evidence.get(Steps).quiet
        each = tuple(_save(evidence, row) for row in of_quiet(evidence, SaveRow))
        return cls(len(quiet), sum(step.own_us for step in quiet), each)

    def need_saves(self) -> None:
        """Raises :class:`NotLooked` where the program saved nothing in these steps."""
        if not self.each:
            raise NotLooked(
                f"the program saved no checkpoint in the {self.steps} timed steps (more --steps may "
                "reach a save; audit checkpoint FILE looks at one that was written)"
            )

    def lines(self) -> Iterator[SavingLine]:
        """Lines that save, by file and line."""
        for site, saves in groupby(
            sorted(self.each, key=lambda save: (save.site.file, save.site.line)),
            key=lambda save: save.site,
        ):
            yield SavingLine(site, tuple(saves), self.steps)


def _save(evidence: Evidence, row: SaveRow) -> Save:
    recording = evidence.recording
    site, calls = recording.site(row.at), [recording.site(number) for number in row.stack[:-1]]
    called = call_in_loop(evidence, calls)
    return Save(site, row.step, row.us, row.path, row.replaced, row.bytes, called, row.compiled)


def call_in_loop(evidence: Evidence, calls: Sequence[Site]) -> Site | None:
    """Of the calls around a line, outermost first, the one that the training loop makes: of a
    callable that is one step the outermost, else the innermost that is in a loop.
    """
    if evidence.recording.manifest.get("kind") == "callable":
        return calls[0] if calls else None
    source = evidence.get(Source)
    return next((call for call in reversed(calls) if loop_around(source, call) is not None), None)
