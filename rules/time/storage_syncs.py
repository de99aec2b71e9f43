"""How long the steps waited for files to be on storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.batch_means import Estimate, mean_of
from auditor.evidence.grouping import by_line
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.recorded.timed_calls import CallingLine, most_called, of_quiet
from auditor.evidence.recorded.torch_save import call_in_loop
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.recordings.schema import SyncedRow


@dataclass(frozen=True)
class StorageSync:
    """Calls of one function at one place in one step. ``called``: the call in the training loop
    that led to them, None where the line itself stands there.
    """

    site: Site
    name: str
    step: int
    n: int
    us: float
    called: Site | None = None


@dataclass(frozen=True)
class SyncingLine(CallingLine[StorageSync]):
    """A line that waits for storage."""

    @property
    def name(self) -> str:
        """The function called there."""
        return self.calls[0].name

    @property
    def number(self) -> int:
        """Calls in all."""
        return sum(call.n for call in self.calls)

    @property
    def called(self) -> Site | None:
        """The call in the loop from which most of them came."""
        return most_called(self.calls)

    @property
    def price(self) -> Estimate | None:
        """Time in a step with its interval; None of too few steps."""
        us = [0.0] * self.steps
        for call in self.calls:
            us[call.step] += call.us
        return mean_of(us)


@dataclass(frozen=True)
class StorageSyncs(Table):
    """Such calls of the quiet pass, whose ``steps`` took ``step_us`` together, waiting for a
    processor left out.
    """

    parts: ClassVar[tuple[str, ...]] = ("synced", "steps")

    steps: int = 0
    step_us: float = 0.0
    calls: tuple[StorageSync, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> StorageSyncs:
        """From the quiet pass; calls of a step that did not complete are left out."""
        quiet = evidence.get(Steps).quiet
        calls = tuple(_call(evidence, row) for row in of_quiet(evidence, SyncedRow))
        return cls(len(quiet), sum(step.own_us for step in quiet), calls)

    def lines(self) -> Iterator[SyncingLine]:
        """Lines that wait, by file and line."""
        for calls in by_line(self.calls):
            yield SyncingLine(calls[0].site, tuple(calls), self.steps)


def _call(evidence: Evidence, row: SyncedRow) -> StorageSync:
    recording = evidence.recording
    around = [recording.site(number) for number in row.stack[:-1]]
    called = call_in_loop(evidence, around)
    return StorageSync(recording.site(row.at), row.name, row.step, row.n, row.us, called)
