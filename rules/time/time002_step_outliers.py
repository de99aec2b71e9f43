"""TIME002: some steps take far longer than the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import median

from auditor import amounts
from auditor.batch_means import mean_of
from auditor.evidence.recorded.batches import Batches
from auditor.evidence.recorded.loading import Loading
from auditor.evidence.recorded.step_pattern import StepPattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.trace.steps import TraceSteps
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob

from ..loading import costliest_line
from ..placing import places_of
from ..pricing import between

COLLECTOR, LOADER = "garbage collection", "waiting for the loader"
UNSEEN = Loading()
"""No stacks of the loading were seen."""

WARMING = 1
"""Steps of a trace that are left out: the first holds the profiler's own start."""


OWN = (", waiting for the processor taken off", "")
"""What a time here is that the report's own median is not: what others took is no outlier of the
program's.
"""


@dataclass(frozen=True)
class TimedStep:
    """A step's number and time, and the parts of it that could explain an outlier. Times in us."""

    number: int
    us: float
    causes: dict[str, float]


REMEDIES = {
    COLLECTOR: Remedy(
        "Call gc.freeze() after set-up, or gc.disable() and collect every few hundred steps on all "
        "ranks together."
    ),
    LOADER: Remedy(
        "Give the loader more workers or a larger prefetch_factor, and look for samples that are "
        "slow to load."
    ),
}
"""By what explains the slow steps."""


@dataclass(frozen=True)
class StepOutliers(Rule):
    """Some steps take far longer than the others."""

    code = "TIME002"
    severity = Severity.WARNING
    since = "0.1"

    ratio: float = knob(2.0, "Times the median from which a step is an outlier (gpuprof).")
    least_us: float = knob(
        5000.0,
        "Us beyond the median below which a step is none: the system's scheduler does as much.",
    )
    share: float = knob(
        0.05, "Share that the outliers add to the time of all steps from which they are reported."
    )
    rare: float = knob(
        0.25, "Share of the steps above which slow steps are no outliers but another kind of step."
    )
    least: int = knob(
        3, "With fewer outliers nothing is reported: what happens twice in a run is no pattern."
    )
    enough: int = knob(10, "With fewer steps nothing is reported.")
    explained: float = knob(0.5, "Share of the outliers' extra time that a cause must explain.")
    costliest: float = knob(
        0.5, "Share of the loading time in one line of yours from which that line is the place."
    )

    def detect(
        self, steps: Steps, batches: Batches, loading: Loading = UNSEEN
    ) -> Iterator[Finding]:
        waits, crowded = batches.waits_by_step(), batches.crowded_by_step()
        timed = [
            TimedStep(
                steps.quiet_from + s.number,
                s.own_us - crowded.get(s.number, 0.0),
                {COLLECTOR: s.gc_us, LOADER: waits.get(s.number, 0.0) - crowded.get(s.number, 0.0)},
            )
            for s in steps.quiet
            if not s.compiles
        ]
        for found in self._report(timed, "timed steps", in_trace=False):
            yield self._placed(found, batches, loading)

    def _placed(self, found: Finding, batches: Batches, loading: Loading) -> Finding:
        """At the line that takes the loading time, if loading explains the slow steps and one does."""
        waiting = batches.waiting() if found.remedy is REMEDIES[LOADER] else None
        why = (
            costliest_line(waiting.loader, loading, self.costliest) if waiting is not None else None
        )
        if why is None:
            return found
        return replace(
            found,
            site=why.site,
            message=f"{found.message}; {why.said}",
            facts=(*found.facts, *why.facts),
            places=places_of(why.site, *why.loops),
            remedy=Remedy(why.advice) if why.advice else found.remedy,
        )

    def in_trace(self, steps: TraceSteps) -> Iterator[Finding]:
        steps.need_steps(self.enough + WARMING)
        numbers = steps.numbers or range(len(steps.steps))
        timed = [
            TimedStep(number, step.us, {LOADER: step.loader_us})
            for number, step in zip(numbers, steps.steps, strict=True)
        ]
        return self._report(timed[WARMING:], "steps of the trace", in_trace=True)

    def _report(self, steps: list[TimedStep], what: str, *, in_trace: bool) -> Iterator[Finding]:
        if len(steps) < self.enough:
            raise NotLooked(
                f"{len(steps)} {what} are too few to tell outliers: {self.enough} are needed"
            )
        typical = median(step.us for step in steps)
        slow = [
            step for step in steps if step.us >= max(self.ratio * typical, typical + self.least_us)
        ]
        extra = sum(step.us - typical for step in slow)
        if not self.least <= len(slow) <= self.rare * len(steps) or extra < self.share * sum(
            step.us for step in steps
        ):
            return
        cause = self._cause(steps, slow, extra)
        if not cause and not in_trace:
            return  # on a shared machine another process's turn looks the same
        interval = StepPattern(tuple(step.number for step in slow), len(steps)).interval
        regular = f", every {interval} steps" if interval else ""
        found = Finding(
            None,
            f"{len(slow)} of {len(steps)} {what} take {self.ratio:g} times the median or "
            f"more{regular}: "
            + (f"{cause} explains it" if cause else "no cause that was watched explains it"),
            steps=len(slow),
            per_step=len(slow) / len(steps),
            lost_us_per_step=extra / len(steps),
            basis="estimated" if in_trace else "measured",
            seen_on="trace" if in_trace else None,
            severity=None if cause else Severity.NOTE,
            facts=(
                (f"median step{OWN[in_trace]}", amounts.duration(typical)),
                (
                    f"slowest step{OWN[in_trace]}",
                    amounts.duration(max(step.us for step in slow)),
                ),
                (
                    f"slow steps ({'as the profiler counts' if in_trace else 'from 0, warm-up included'})",
                    ", ".join(str(step.number) for step in slow[:20]),
                ),
            ),
            remedy=REMEDIES.get(cause),
        )
        beyond = {step.number: step.us - typical for step in slow}
        price = mean_of([beyond.get(step.number, 0.0) for step in steps])
        yield found if in_trace else between(found, price)

    def _cause(self, steps: Iterable[TimedStep], slow: list[TimedStep], extra: float) -> str:
        """What takes at least half of the extra time, beyond what it takes on a usual step; empty
        where nothing does.
        """
        for cause in slow[0].causes:
            usual = median(step.causes[cause] for step in steps)
            if sum(step.causes[cause] - usual for step in slow) >= self.explained * extra:
                return cause
        return ""
