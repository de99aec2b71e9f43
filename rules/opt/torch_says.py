"""OPT009 to 12: schedules, clipping and groups of parameters that torch warns of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from auditor import amounts
from auditor.evidence.recorded.amp import Amp
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.files import Source, name_of
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.recordings.schema.run import TorchWarningRow

from ..torch_says import TorchSays
from .rows import SchedulerRow


class SchedulerBeforeOptimizer(TorchSays):
    """A learning-rate scheduler steps before its optimizer."""

    code = "OPT009"
    severity = Severity.WARNING
    warning = "scheduler first"
    defect = (
        "the scheduler steps before the optimizer: the first rate of the schedule is never used"
    )
    advice = "Call scheduler.step() after optimizer.step()."

    def detect(  # type: ignore[override]  # the engine reads what it needs off the signature
        self,
        warnings: Rows[TorchWarningRow],
        steps: Steps,
        amp: Amp,
        schedulers: Rows[SchedulerRow],
    ) -> Iterator[Finding]:
        """Silent under a GradScaler, which leaves the optimizer's first steps out: torch warns then,
        whatever the order.
        """
        if any(event.what == "scale" for event in amp.events):
            return
        often = {row.site: row for row in schedulers if row.calls > 2 * row.steps > 0}
        for finding in self.at_lines(warnings, steps):
            row = often.get(finding.site) if finding.site is not None else None
            yield (
                finding
                if row is None
                else replace(
                    finding,
                    message=f"the scheduler steps {row.calls:,} times in "
                    f"{amounts.count(row.steps, 'optimizer step')}: a schedule made for optimizer "
                    "steps is over early",
                    remedy=Remedy(
                        "Call scheduler.step() where the optimizer steps, or create it for the number of micro-batches."
                    ),
                )
            )


class ClippingOfAnEmptyGenerator(TorchSays):
    """Clipping is given a generator that is used up."""

    code = "OPT010"
    severity = Severity.WARNING
    warning = "empty clipping"
    defect = "clipping gets an exhausted generator: no gradient is clipped"
    advice = "Pass model.parameters() in each call, or keep list(model.parameters())."


class ParameterTwiceInAGroup(TorchSays):
    """An optimizer is given a parameter twice."""

    code = "OPT011"
    severity = Severity.WARNING
    warning = "parameter twice"
    defect = "an optimizer group holds a parameter twice: each step updates it twice"
    advice = "Pass each parameter once, as list(dict.fromkeys(parameters))."


class SchedulerGivenAnEpoch(TorchSays):
    """A scheduler is told the epoch, which is deprecated."""

    code = "OPT012"
    severity = Severity.NOTE
    warning = "scheduler epoch"
    defect = (
        "scheduler.step() gets the epoch: the rate is recomputed from it, and torch "
        "will remove the argument"
    )
    advice = "Call scheduler.step() without the epoch."

    def detect(  # type: ignore[override]  # as above
        self, warnings: Rows[TorchWarningRow], steps: Steps, source: Source
    ) -> Iterator[Finding]:
        """Where the line gives it: torch's own schedulers pass it on to those inside them."""
        for finding in self.at_lines(warnings, steps):
            calls = source.calls_at(finding.site) if finding.site is not None else ()
            if any(
                name_of(call.func).endswith("step") and (call.args or call.keywords)
                for call in calls
            ):
                yield finding
