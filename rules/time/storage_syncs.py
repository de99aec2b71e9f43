"""TIME003 and 4: time that nothing explains, or storage does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor import amounts
from auditor.batch_means import Estimate, mean_of
from auditor.evidence.grouping import by_line
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.recorded.timed_calls import CallingLine, most_called, of_quiet
from auditor.evidence.recorded.torch_save import call_in_loop
from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.steps import TraceSteps
from auditor.model import Finding, Severity, Site
from auditor.recordings.schema.data import SyncedRow
from auditor.rule import NotLooked, Rule, knob

from ..placing import places_of
from ..pricing import between


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


@dataclass(frozen=True)
class UnattributedTime(Rule):
    """A part of the step is spent on nothing that the profiler knows."""

    code = "TIME003"
    severity = Severity.NOTE
    since = "0.1"

    share: float = knob(
        0.2,
        "Share of the steps' time in long stretches without any event from which it is reported "
        "(TraceML).",
    )
    nothing: float = knob(
        0.95, "Share from which the trace itself is incomplete, and nothing is reported."
    )

    def detect(self, steps: TraceSteps) -> Iterator[Finding]:
        steps.need_steps()
        steps.need_a_device()
        share = steps.share("unknown_us")
        if share >= self.nothing:
            raise NotLooked(
                "the trace shows next to nothing inside its steps: it was cut down, or another "
                "thread does the work"
            )
        if share < self.share or steps.silence is None:
            return
        site = steps.silence.site
        where = f", the longest in {site.function}" if site is not None else ""
        yield Finding(
            site,
            # no price: the work may be needed, so what would come back is not known
            f"for {amounts.percent(share)} of {steps.where} nothing happened that the profiler "
            f"knows{where}",
            steps=steps.steps_above("unknown_us", self.share),
            per_step=1.0,
            seen_on="trace",
            facts=(
                (
                    "unknown",
                    (
                        f"{amounts.duration(steps.mean('unknown_us'))} per step, in stretches of a "
                        "millisecond or more"
                    ),
                ),
                ("longest stretch", amounts.duration(steps.silence.us)),
                *((("inside", steps.silence.function),) if steps.silence.function else ()),
                ("device busy", f"{amounts.percent(steps.share('busy_us'))} of the time"),
                (
                    "waiting for the loader",
                    f"{amounts.percent(steps.share('loader_us'))} of the time"
                    if steps.loader
                    else "no loader recorded",
                ),
            ),
        )


@dataclass(frozen=True)
class StorageWaitedFor(Rule):
    """The step waits until a file is on storage."""

    code = "TIME004"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Write at the log interval only, and leave it to the operating system when the file is "
        "written out: flush() without fsync survives the program's death. Or write from a thread."
    )

    share: float = knob(
        0.05, "Share of the timed steps' time in such calls of one line from which it is reported."
    )
    often: float = knob(0.25, "Share of the timed steps that must have such a call.")

    def detect(self, syncs: StorageSyncs, machine: Machine) -> Iterator[Finding]:
        for line in syncs.lines():
            steps = len(line.pattern.seen)
            share = line.us / (syncs.step_us or 1.0)
            if share < self.share or steps < max(2.0, self.often * syncs.steps):
                continue
            each = line.us / line.number
            found = Finding(
                line.site,
                f"{line.name} takes {amounts.percent(share)} of the step time: "
                f"{amounts.duration(each)} a call, on {line.pattern}",
                steps=steps,
                per_step=line.per_step,
                lost_us_per_step=line.us_per_step,
                basis="estimated" if machine.cuda else "measured",
                facts=(("calls", str(line.number)),),
                places=places_of(line.site, line.called),
            )
            yield found if machine.cuda else between(found, line.price)
