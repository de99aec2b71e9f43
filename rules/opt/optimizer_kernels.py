"""OPT001, 3, 7, 9 to 14, 16 and 18: optimizers that launch a kernel for each tensor or lose their state,
schedulers that are stepped with another count than they were made for, and what torch warns of.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from auditor import amounts
from auditor.evidence.recorded.amp import Amp
from auditor.evidence.recorded.batches import Batches
from auditor.evidence.recorded.step_pattern import step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.call_arguments import given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, name_of, the_only, unparsed
from auditor.evidence.table import Evidence, Rows, together
from auditor.evidence.trace.facts import inside
from auditor.evidence.trace.patterns import MANY_LAUNCHES, OptimizerCalls
from auditor.model import Finding, Remedy, Severity, Site
from auditor.model.what_if import Change
from auditor.recordings.schema.graph import CensusRow
from auditor.recordings.schema.run import TorchWarningRow
from auditor.rule import Rule, knob

from ..census import CensusSays
from ..lines import places_of
from ..torch_says import TorchSays
from .rows import SchedulerRow, SingleTensorStepRow


class SchedulerBeforeOptimizer(TorchSays):
    """A learning rate scheduler steps before its optimizer."""

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
        """Silent under a GradScaler, which skips first steps: torch warns then, in any order."""
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
    defect = "no gradient is clipped: the generator given to clipping is already used up"
    advice = "Keep the parameters in a list, or create the generator for each call."

    def detect(  # type: ignore[override]  # the engine reads what it needs off the signature
        self, warnings: Rows[TorchWarningRow], steps: Steps, source: Source
    ) -> Iterator[Finding]:
        """At the line that makes the generator, where it is known."""
        for finding in self.at_lines(warnings, steps):
            made = None if finding.site is None else _generator(source, finding.site)
            places = places_of(made, finding.site) if made is not None else ()
            yield replace(finding, site=made or finding.site, places=places)


def _generator(source: Source, site: Site) -> Site | None:
    """The only assignment of a generator to what a call on the line is given."""
    given = {unparsed(each) for call in source.calls_at(site) for each in call.args}
    return the_only(
        source.site_of(file, node)
        for file, node in source.every(ast.Assign)
        if given & set(map(unparsed, node.targets)) and _is_generator(node.value)
    )


def _is_generator(value: ast.expr) -> bool:
    called = name_of(value.func) if isinstance(value, ast.Call) else ""
    return isinstance(value, ast.GeneratorExp) or called in ("filter", "map", "parameters", "chain")


class ParameterTwiceInAGroup(TorchSays):
    """An optimizer is given a parameter twice."""

    code = "OPT011"
    severity = Severity.WARNING
    warning = "parameter twice"
    defect = "an optimizer group holds a parameter twice: each step updates it twice"
    advice = "Pass each parameter once, as list(dict.fromkeys(parameters))."


class SchedulerGivenAnEpoch(TorchSays):
    """A scheduler gets the epoch as an argument, which is deprecated."""

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
        2.0, "Report from this many swings per epoch, epochs per schedule, or one seen swing on."
    )
    share: float = knob(0.5, "Report a rate that falls to 1/1000 within this share of an epoch.")
    epochs: float = knob(3.0, "Note a rate that falls to 1/1000 within this many epochs.")
    fewest: int = knob(
        5, "Report only after this many scheduler calls, or if `steps_per_epoch` is at least this."
    )

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
                early = each.gone and each.gone > self.share * steps
                yield Finding(
                    each.site,
                    f"{each.name} {what}",
                    steps=each.calls,
                    per_step=1.0 if each.each_step else 1 / each.apart,
                    severity=Severity.NOTE if early else None,
                    remedy=EACH_BATCH if each.each_step else None,
                )

    def _often(self, each: SchedulerRow, steps: int) -> str:
        """What is wrong if it steps with its optimizer, ``steps`` in an epoch (0: unknown)."""
        if each.calls < self.fewest:
            return ""
        if each.period and (each.epoch >= each.period or steps >= self.swings * each.period):
            return (
                f"(T_max={each.period // 2}) steps with each optimizer step: the learning rate "
                f"falls to its minimum and rises again every {amounts.count(each.period, 'step')}"
            )
        if each.gone and each.gone <= self.epochs * steps:
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
    """Batches of an epoch of the loader that gave nearly all, and how many; 0 if unknown."""
    gave: Counter[int] = Counter()
    for each in batches.loud:
        gave[each.loader] += each.n
    for number, n in gave.most_common(1):
        loader = next((each for each in batches.loaders if each.number == number), None)
        if loader is not None and n >= MOST_OF_THEM * gave.total():
            return loader.length or 0, n
    return 0, 0


class OptimizerMadeAnew(CensusSays):
    """An optimizer is created again and again, and loses its state."""

    code = "OPT013"
    SAID: ClassVar = {
        "remade": "{row.name} is created here again and again over the same {parameters}, the last "
        "time after {steps}: each time its state (momentum, moments) is lost",
    }
    advice = (
        "Create the optimizer once, before the loop over the epochs, and pass it on; set "
        'group["lr"] or use a scheduler to change its rate.'
    )

    def said(self, row: CensusRow, **words: object) -> str:
        parameters, steps = amounts.count(row.n, "parameter"), amounts.count(row.steps, "step")
        return super().said(row, parameters=parameters, steps=steps, **words)


class LoadedStateIsLost(CensusSays):
    """The state that an optimizer loaded is lost: another one steps."""

    code = "OPT014"
    SAID: ClassVar = {
        "unread": "this {row.name} steps with empty state: the state loaded at {other} went to "
        "another {row.name} over the same parameters, which never steps",
    }
    advice = "Create the optimizer first, call its load_state_dict(), and step that optimizer."


class SchedulerOfAnother(CensusSays):
    """A scheduler sets the rate of an optimizer that no longer steps."""

    code = "OPT016"
    SAID: ClassVar = {
        "stale": "this {row.other} replaced the optimizer of the {row.name} that steps at "
        "{other}: its learning rate never changes",
    }
    advice = (
        "Create a new scheduler each time its optimizer is created; or keep the optimizer and call "
        "add_param_group()."
    )


class GroupRatesOverwritten(CensusSays):
    """One learning rate replaces the separate rates of the parameter groups."""

    code = "OPT018"
    SAID: ClassVar = {
        "rates": "{row.n} groups of {row.name} were created with different learning rates, and "
        "each of the first {row.steps} steps used one rate for all of them",
    }
    advice = (
        "Scale the rate of each group instead: LambdaLR multiplies what each was created with, "
        "OneCycleLR and CyclicLR take a list of rates, and a hand-written loop can multiply "
        "group['initial_lr']."
    )

    def place(self, row: CensusRow, source: Source) -> Site | None:
        """The line that sets the rates, if there is one, else the optimizer."""
        setting = [
            source.site_of(file, node)
            for file, node in source.every(ast.Assign)
            if any(unparsed(each).endswith("['lr']") for each in node.targets)
        ]
        setting += [source.site_of(*call) for call in source.calls_of("OneCycleLR", "CyclicLR")]
        return the_only(setting) or row.site


class RunsOptimizerCalls(OptimizerCalls):
    """:class:`OptimizerCalls` of a run with a GPU. A rehearsal has no trace."""

    @classmethod
    def build(cls, evidence: Evidence) -> Self:
        return cls() if evidence.recording.device.shadow else super().build(evidence)


@dataclass(frozen=True)
class OptimizerStepsOneByOne(Rule):
    """The optimizer launches its kernels separately for each parameter."""

    code = "OPT001"
    severity = Severity.WARNING
    since = "0.1"

    rehearsed = True

    launches: int = knob(MANY_LAUNCHES, "Report if a step() launches at least this many kernels.")
    share: float = knob(0.5, "Report only if at least this share of the steps calls it.")

    def detect(
        self,
        optimizer: RunsOptimizerCalls,
        stepped: Rows[SingleTensorStepRow],
        steps: Steps,
        *,
        source: Source,
        configs: Configs,
    ) -> Iterator[Finding]:
        yield from self.in_trace(optimizer, source, configs)
        watched = len(steps.loud)
        own = (row for row in stepped if row.site is not None and row.step < watched)
        for calls in together(own, lambda row: (str(row.made or row.site), row.name)):
            first, n = calls[0], sum(call.n for call in calls)
            operators = sum(call.operators for call in calls) / n
            pattern = step_pattern({call.step for call in calls}, watched)
            if operators < self.launches or not pattern.usual(self.share):
                continue
            yield Finding(
                first.made or first.site,
                f"{first.name} is set to step one parameter after the other: "
                f"{amounts.digits(operators)} operators in each step(), each a launch on a GPU",
                steps=len(pattern.seen),
                per_step=n / watched,
                facts=(("steps at", str(first.site)),),
                remedy=_foreach([first.name], source, configs),
            )

    def in_trace(
        self, optimizer: OptimizerCalls, source: Source, configs: Configs
    ) -> Iterator[Finding]:
        if not optimizer.one_by_one or optimizer.launches_per_call < self.launches:
            return
        loud = optimizer.marked
        priced = loud and optimizer.idle_us_per_step > 0
        yield Finding(
            optimizer.where,
            f"{' and '.join(optimizer.names)}{inside(optimizer.where)} launches "
            f"{amounts.digits(optimizer.launches_per_call)} kernels in each step(), "
            f"{amounts.duration(optimizer.us_per_step)} of host time per step, one parameter after "
            "the other",
            steps=optimizer.steps if loud else 0,
            per_step=optimizer.calls / optimizer.steps,
            lost_us_per_step=optimizer.idle_us_per_step if priced else None,
            basis="estimated" if priced else "none",
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            remedy=_foreach(optimizer.names, source, configs),
            changes=(Change("optimizer launches"),) if priced else (),
        )


def _foreach(names: Sequence[str], source: Source, configs: Configs) -> Remedy:
    """Of what turns foreach off on the only line that makes the optimizer."""
    text = (
        "Pass foreach=True to the optimizer, or fused=True if it has that (Adam, AdamW, SGD and "
        "Adagrad of torch)."
    )
    site = source.only_call(names[0], given="foreach", lacking="fused") if len(names) == 1 else None
    if site is None:
        return Remedy(text)
    reason = "the same arithmetic on lists of tensors: the last bits of the parameters may differ"
    foreach = given(source, configs, site, names[0], "foreach", ran=False)
    return foreach.remedy(text, "True", reason=reason)


FUSED = frozenset({"Adam", "AdamW"})
"""Optimizers of torch that have had a fused CUDA implementation since 2.0. SGD's came with 2.3, and
a trace does not say which torch wrote it."""


@dataclass(frozen=True)
class FusedOptimizerNotUsed(Rule):
    """The optimizer's fused implementation is not used."""

    code = "OPT003"
    severity = Severity.NOTE
    since = "0.1"

    share: float = knob(0.05, "Report if step() takes at least this share of the steps' host time.")

    def detect(
        self, optimizer: OptimizerCalls, source: Source, configs: Configs
    ) -> Iterator[Finding]:
        could = [name for name in optimizer.names if name in FUSED]
        foreach = optimizer.foreach and optimizer.launches_per_call > 0 and not optimizer.fused
        if (
            not could
            or not foreach
            or len(optimizer.names) > 1
            or optimizer.host_share < self.share
        ):
            return
        made_at = source.only_call(could[0], lacking="foreach")
        yield Finding(
            optimizer.where,
            f"{could[0]}{inside(optimizer.where)} steps with foreach operators, "
            f"{amounts.percent(optimizer.host_share)} of the steps' time on the host: "
            "fused=True does the same in one pass",
            steps=optimizer.steps if optimizer.marked else 0,
            per_step=optimizer.calls / optimizer.steps,
            seen_on="trace",
            remedy=given(source, configs, made_at, could[0], "fused", ran=False).remedy(
                "Pass fused=True to the optimizer, measure it, and keep what is faster.",
                "True",
                reason="the fused kernel rounds in another order: the last bits of the parameters "
                "differ",
            ),
        )
