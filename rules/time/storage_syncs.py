"""TIME003 and 4: time that nothing explains, or storage does."""

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.lines import Lines, TrainingLoop
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.trace.facts import TraceSteps
from auditor.model import Finding, Severity
from auditor.recordings.schema.data import SyncedRow
from auditor.rule import NotLooked, Rule, knob

from ..lines import LineReport, places_of


@dataclass(frozen=True)
class UnattributedTime(Rule):
    """Part of the step is spent on something the profiler does not see."""

    code = "TIME003"
    severity = Severity.NOTE
    since = "0.1"

    share: float = knob(0.2, "Report if it is at least this share of the steps (TraceML's limit).")
    nothing: float = knob(0.95, "Report nothing from this share on: the trace is incomplete.")

    def detect(self, steps: TraceSteps) -> Iterator[Finding]:
        steps.need_steps()
        steps.need_a_device()
        share = steps.share("unknown_us")
        if share >= self.nothing:
            raise NotLooked(
                "the trace shows almost nothing inside its steps: it was cut down, or another "
                "thread does the work"
            )
        if share < self.share or steps.silence is None:
            return
        site = steps.silence.site
        where = f", the longest in {site.function}" if site is not None else ""
        yield Finding(
            site,
            # no price: the work may be needed, so what would come back is not known
            f"for {amounts.percent(share)} of {steps.where} the profiler saw nothing happen{where}",
            steps=steps.steps_above("unknown_us", self.share),
            per_step=1.0,
            seen_on="trace",
            facts=(
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
class StorageWaitedFor(LineReport):
    """The step waits until a file is on storage."""

    code = "TIME004"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Write at the log interval only, and let the operating system decide when the file is "
        "written out: what flush() wrote survives a crash of the program, without fsync. Or write from "
        "a thread."
    )

    share: float = knob(0.05, "Report a line's calls of at least this share of the steps' time.")
    often: float = knob(0.25, "Report only if at least this share of the steps has such a call.")

    def detect(
        self, syncs: Lines[SyncedRow], machine: Machine, loop: TrainingLoop
    ) -> Iterator[Finding]:
        for line in syncs.lines():
            share = line.us / (syncs.step_us or 1.0)
            if share < self.share or len(line.pattern.seen) < max(2.0, self.often * line.steps):
                continue
            yield self.report(
                line,
                f"{line.rows[0].name} takes {amounts.percent(share)} of the step time: "
                f"{amounts.duration(line.us / line.n)} a call, on {line.pattern}",
                basis="estimated" if machine.cuda else "measured",
                facts=(),
                places=places_of(line.site, loop.call_of(line)),
            )
