"""DATA007: the step waits for its data loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

from auditor import amounts
from auditor.batch_means import Estimate, of_separate
from auditor.evidence.recorded.batches import Batches, Loader, Loading, Starts, Waiting
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, shorten
from auditor.evidence.trace.facts import TraceSteps
from auditor.model import Finding, FoundAt, Remedy, Severity, Site
from auditor.model.what_if import Change
from auditor.rule import NotLooked, Rule, knob

from ..loading import Slow, begun_for_each_batch, cause, costliest_line, started_for_each_epoch
from ..pricing import between

ALONE = "loader_alone_us"
STAY = "the workers keep their copies of the dataset and their random state between epochs"
OPEN_FILE = (
    "the dataset keeps a file open, whose position worker processes would share: open it in each "
    "worker first, when the first sample is requested"
)


RESTARTED = 0.1
"""Share of the time, where most of it is restarting the workers for each short epoch."""

BUSY = 0.5
"""Workers that are busy all the time with loading that no step waits for, from which a line of yours
that takes most of it is a note; on a GPU, as a share of the loader's workers.
"""

HANDED_US = 3000.0
"""To hand a batch over, processes and threads wake one another, whatever it holds: a shorter wait
for workers is a note, and loading that takes less is not told where they hide it.
"""

NOTICED = 0.1
"""Share of a step from which it counts as waiting, and of a trace's time from which it has a note."""

SEVERAL = 5
"""Steps that waited from which it is proven though the price's interval reaches zero."""


@dataclass(frozen=True)
class StepWaitsForInput(Rule):
    """The step waits for its input."""

    code = "DATA007"
    severity = Severity.WARNING
    since = "0.1"
    advice = "Make loading cheaper (prepare once, store decoded samples), or use more workers."

    share: float = knob(0.2, "Warn if the step waits for input for this share of the timing pass.")
    severe: float = knob(
        0.4, "Report an error if the step waits for input for this share of the timing pass."
    )
    least_us: float = knob(
        1000.0, "Report only mean waits of at least this many us (in a trace, less is a note)."
    )

    def detect(
        self, batches: Batches, machine: Machine, source: Source, configs: Configs, loading: Loading
    ) -> Iterator[Finding]:
        batches.need_a_loader()
        batches.need_times()
        waiting = batches.waiting()
        why = None if waiting is None else self._why(waiting, batches, loading)
        if waiting is None or not self._waits(waiting, why):
            aside = [*self._begun(batches, loading)]
            aside = aside or [*self._hidden(batches, machine, loading)]
            yield from aside
            if not aside:
                at_most = None if waiting is None else waiting.at_most
                if at_most is not None and self._waits(at_most, None):
                    raise NotLooked(
                        f"the machine was busy: the step waited for its loader for "
                        f"{amounts.percent(at_most.share)} of the time, but the loader's workers waited for a CPU"
                    )
            return
        loader, slow = waiting.loader, waiting.steps_above(NOTICED)
        price = _price(waiting, batches.starts(loader.number), why)
        workers, made = _workers(loader, machine.cpus), (loader.made_at, "DataLoader")
        because = f": {why.said}" if why is not None else ""
        found = Finding(
            why.site if why is not None else loader.made_at or loader.consumed_at,
            (
                f"the step waits {amounts.duration(waiting.mean_us)} for input, "
                f"{amounts.percent(waiting.share)} of its time"
                f"{_bursts(slow, len(waiting.steps_us))} (num_workers={waiting.loader.workers}){because}"
            )
            + self._doubt(waiting, why),
            steps=slow,
            per_step=1.0,
            lost_us_per_step=waiting.mean_us,
            basis="measured",
            severity=self._severity(waiting, slow, price, why),
            places=_places(why, loader.made_at if workers else None),
            facts=(*waiting.facts, *(why.facts if why is not None else ())),
            remedy=self._remedy(
                why,
                loader,
                workers,
                given(source, configs, *made, "num_workers", ran=loader.workers),
                given(source, configs, *made, "persistent_workers", ran=False),
            ),
        )
        yield between(found, price)

    def _why(self, waiting: Waiting, batches: Batches, loading: Loading) -> Slow | None:
        return cause(waiting.loader, batches.starts(waiting.loader.number), loading)

    def _waits(self, waiting: Waiting, why: Slow | None) -> bool:
        share = RESTARTED if why is not None and why.kind == "epoch" else self.share
        return waiting.mean_us >= self.least_us and share <= min(
            waiting.share, waiting.recurring_share
        )

    def _begun(self, batches: Batches, loading: Loading) -> Iterator[Finding]:
        """Iterators that are made anew for each batch, whatever of it the steps waited for: they
        drop what workers had loaded ahead. And workers that are started anew for each short epoch,
        where that takes its share of the clock's time.
        """
        for loader in batches.loaders:
            starts = batches.starts(loader.number)
            why = begun_for_each_batch(loader, starts, loading)
            each_us = starts.us / max(1, starts.made)
            said = why.said if why is not None else ""
            if why is None and self._often(starts, batches):
                why = started_for_each_epoch(loader, starts)
                every = f"every {starts.batches_each:.3g} batches"
                said = f"the workers of this loader are restarted {every}"
                each_us = median(starts.each_us)
            if why is None or not loader.workers or each_us < self.least_us:
                continue
            yield Finding(
                why.site,
                f"{said}: {amounts.duration(each_us)} each time, an unknown part of which is waiting "
                "for a CPU",
                steps=starts.made,
                per_step=1.0,
                severity=Severity.NOTE,
                facts=why.facts,
                remedy=Remedy(why.advice),
            )

    def _hidden(self, batches: Batches, machine: Machine, loading: Loading) -> Iterator[Finding]:
        """Lines that keep workers busy while the step does not wait. On a CPU a worker that is half
        busy is told of: beside a GPU's step it would be waited for.
        """
        step_us = median(step.own_us for step in batches.quiet_steps)
        for loader in batches.loaders:
            fetched = loading.fetched.get(loader.number)
            if fetched is None or fetched.each_us < HANDED_US or step_us <= 0:
                continue
            busy = fetched.each_us * batches.taken_each(loader.number) / step_us
            why = costliest_line(loader, loading)
            if why is None or busy < BUSY * (loader.workers if machine.cuda else 1):
                continue
            if busy > loader.workers:  # then the step must wait: workers waited for a processor
                continue
            yield Finding(
                why.site,
                f"{why.said}; loading takes {fetched.cost} and keeps {busy:.2g} of "
                f"{loader.workers} workers busy: the step does not wait for them, but a faster step "
                "would",
                steps=len(batches.quiet_steps),
                per_step=1.0,
                severity=Severity.NOTE,
                places=_places(why, None),
                facts=(*why.facts, ("num_workers", str(loader.workers))),
                remedy=Remedy(why.advice),
            )

    def _often(self, starts: Starts, batches: Batches) -> bool:
        usual_us = median(starts.each_us) * starts.made if starts.each_us else 0.0
        return usual_us >= RESTARTED * sum(step.us for step in batches.quiet_steps) > 0

    def _severity(
        self, waiting: Waiting, slow: int, price: Estimate | None, why: Slow | None
    ) -> Severity | None:
        unproven = price is not None and not price.proven and slow < SEVERAL
        if unproven or self._doubt(waiting, why):
            return Severity.NOTE
        return Severity.ERROR if waiting.share >= self.severe else None

    def _doubt(self, waiting: Waiting, why: Slow | None) -> str:
        """What else the wait may be; nothing where iterators that begin are counted."""
        if why is not None and why.kind in ("iterator", "epoch"):
            return ""
        if waiting.crowded:
            return "; the machine was busy, and its workers may have waited for a CPU"
        if waiting.loader.workers > 0 and waiting.mean_us < HANDED_US:
            return "; handing a batch over from its workers alone may take that long"
        return ""

    def in_trace(self, steps: TraceSteps) -> Iterator[Finding]:
        if not steps.loader:
            raise NotLooked("the trace shows no torch DataLoader")
        if steps.device_missing:
            steps.need_a_device()
        share, mean = steps.share(ALONE), steps.mean(ALONE)
        often = steps.steps_above(ALONE, NOTICED)
        if min(share, steps.steady(ALONE)) < NOTICED:
            return
        marked, idle = steps.marked, " while no device works" if steps.device else ""
        yield Finding(
            steps.loader_site,
            f"for {amounts.percent(share)} of {steps.where} the loop waits for its DataLoader "
            f"({steps.workers}){idle}{_bursts(often, len(steps.steps))}",
            steps=often if marked else 0,
            per_step=1.0 if marked else 0.0,
            lost_us_per_step=mean if marked else None,
            basis="estimated" if marked else "none",
            seen_on="trace",
            severity=self._severity_in_trace(steps, share, mean),
            facts=(
                (
                    "waiting",
                    (
                        f"{amounts.percent(steps.share('loader_us'))} of the time, "
                        f"{amounts.duration(steps.mean('loader_us'))} per step"
                    ),
                ),
                (
                    "not hidden by device work",
                    f"{amounts.percent(share)}, {amounts.duration(mean)} per step",
                ),
                ("steps from", steps.source),
            ),
            changes=(Change("loader"),) if marked and steps.device else (),
        )

    def _severity_in_trace(self, steps: TraceSteps, share: float, mean: float) -> Severity | None:
        if (
            not steps.certain
            or share < self.share
            or mean < self.least_us
            or not steps.recurs(ALONE, NOTICED)
        ):
            return Severity.NOTE
        return Severity.ERROR if share >= self.severe else None

    def _remedy(
        self,
        why: Slow | None,
        loader: Loader,
        workers: int,
        number: CallArgument,
        persistent: CallArgument,
    ) -> Remedy:
        """``workers`` are those worth trying (0: none); the loader is given the others now."""
        if why is not None and why.kind == "iterator":
            return Remedy(why.advice)
        if why is not None and why.kind == "epoch":
            return persistent.remedy(why.advice, "True", reason=STAY)
        beside = self._beside(loader, workers, number, persistent)
        if why is None:
            return beside
        return replace(beside, text=f"{why.advice} Alternatively: {beside.text}")

    def _beside(
        self, loader: Loader, workers: int, number: CallArgument, persistent: CallArgument
    ) -> Remedy:
        """Loading in more workers."""
        if not workers:
            return Remedy(self.advice, refused=OPEN_FILE if loader.open_file else None)
        reason = (
            "dataset and collate function run in worker processes: they must be picklable, and "
            "they draw other random numbers"
        )
        text = f"Load beside the step with {workers} persistent worker processes."
        edits = number.edits(str(workers), reason=reason)
        # elsewhere it may become 0 again, with which persistent workers are an error
        if edits and not number.written:
            edits += () if persistent.written else persistent.edits("True", reason=reason)
        return Remedy(text + number.advice, edits, refused=number.refused)


def _price(waiting: Waiting, starts: Starts, why: Slow | None) -> Estimate | None:
    """The mean wait. Where iterators begin every few steps, these are events that lie far apart: at
    least what they cost is waited for.
    """
    if why is None or why.kind != "epoch":
        return waiting.price
    each = of_separate(starts.each_us)
    if each is None:
        return waiting.price
    often, mean = len(starts.each_us) / len(waiting.waits_us), waiting.mean_us
    return Estimate(mean, min(mean, each.low * often), max(mean, each.high * often))


def _places(why: Slow | None, loader: Site | None) -> tuple[FoundAt, ...]:
    """The line, the loops around it, the costliest line inside it, those of the functions that led to
    it, and the loader's where workers could load beside the step, in the order of lines; none where
    there is but the line.
    """
    if why is None:
        return ()
    more = [loader] if loader is not None and why.kind == "line" else []
    sites = dict.fromkeys(each for each in (*why.loops, *more) if each != why.site)
    if not sites:
        return ()
    others = [FoundAt(site, shorten(site.text)) for site in sites]
    own = FoundAt(why.site, shorten(why.site.text), 1.0)
    return tuple(sorted([*others, own], key=lambda each: each.site.line))


def _workers(loader: Loader, cpus: int) -> int:
    """Workers worth trying; 0 where more would not help, or would repeat or tear the data (an
    iterable dataset, an open file), or has no line.
    """
    wanted = (
        loader.workers == 0
        and not loader.open_file
        and loader.length is not None
        and loader.made_at is not None
        and cpus > 1
    )
    return min(4, cpus) if wanted else 0


def _bursts(often: int, steps: int) -> str:
    return f", in bursts: on {often} of {steps} steps" if 2 * often < steps else ""
