"""OPT007: a scheduler that is stepped with another count than it was made for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.batches import Batches
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .rows import SchedulerRow

MOST_OF_THEM = 0.8
"""Share of the batches that the loader of the training must have given."""


EACH_BATCH = Remedy(
    "Step it once per epoch, after the loop over the batches; or create it for batches: epochs * "
    "len(loader) instead of the number of epochs."
)


@dataclass(frozen=True)
class ScheduleInEpochs(Rule):
    """A learning rate scheduler counts epochs and is stepped with every batch, or the other way
    round
    """

    code = "OPT007"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    everywhere = True
    advice = "Call its step() after the optimizer's, with each batch."

    swings: float = knob(
        2.0,
        "Report from this many swings per epoch, or epochs per schedule; one observed swing is enough.",
    )
    share: float = knob(0.5, "Report if the rate is gone before this share of an epoch.")
    fewest: int = knob(5, "Report only from this many calls, or this `steps_per_epoch`.")

    def detect(self, schedulers: Rows[SchedulerRow], batches: Batches) -> Iterator[Finding]:
        length, taken = _training_loader(batches)
        for each in schedulers:
            if each.repeated:
                yield Finding(
                    each.site,
                    f"{each.name} gets the number of the call before on {each.repeated} of "
                    f"{each.calls} calls: each counts as an epoch without progress, and lowers the "
                    "rate after its patience",
                    steps=each.calls,
                    per_step=1.0,
                    remedy=Remedy("Step it only when the number is new: after each evaluation."),
                )
                continue
            steps = length * each.in_pass // taken if taken else 0
            what = self._often(each, steps) if each.each_step else self._seldom(each)
            if what:
                yield Finding(
                    each.site,
                    f"{each.name} {what}",
                    steps=each.calls,
                    per_step=1.0 if each.each_step else 1 / each.apart,
                    remedy=EACH_BATCH if each.each_step else None,
                )

    def _often(self, each: SchedulerRow, steps: int) -> str:
        """What is wrong where it is stepped as often as its optimizer, with so many ``steps`` in an
        epoch; 0 where nobody knows.
        """
        if each.calls < self.fewest:
            return ""
        if each.period and (each.epoch >= each.period or steps >= self.swings * each.period):
            return (
                f"(T_max={each.period // 2}) steps with each optimizer step: the learning rate "
                f"falls to its minimum and rises again every {amounts.count(each.period, 'step')}"
            )
        if each.gone and each.gone <= self.share * steps:
            return (
                "steps with each optimizer step: the learning rate falls to a thousandth "
                f"after {amounts.count(each.gone, 'step')}, but one epoch has {steps:,}"
            )
        return ""

    def _seldom(self, each: SchedulerRow) -> str:
        steps = each.epoch_of or 0
        if not self.fewest <= steps <= each.apart:
            return ""
        return (
            f"was created with steps_per_epoch={steps} but steps only once in "
            f"{amounts.count(each.apart, 'optimizer step')}: its schedule takes {steps:,} "
            "times as long as intended"
        )


def _training_loader(batches: Batches) -> tuple[int, int]:
    """Batches of an epoch of the loader that gave nearly all batches of the loud pass, and how many
    it gave; 0 where there is none, or it has no length.
    """
    gave: Counter[int] = Counter()
    for each in batches.loud:
        gave[each.loader] += each.batches
    for number, n in gave.most_common(1):
        loader = next((each for each in batches.loaders if each.number == number), None)
        if loader is not None and n >= MOST_OF_THEM * gave.total():
            return loader.length or 0, n
    return 0, 0
