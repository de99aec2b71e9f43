"""DATA007: the step waits for its data loader, and why where that shows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from auditor import amounts
from auditor.batch_means import Estimate, of_separate
from auditor.evidence.recorded.batches import Batches, Costliest, Loader, Loading, Starts, Waiting
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.evidence.trace.facts import TraceSteps
from auditor.model import Finding, Remedy, Severity, Site
from auditor.model.what_if import Change
from auditor.recordings.schema.sync import WorkerKeptRow
from auditor.rule import NotLooked, Rule, knob

from ..lines import between, places_of

ONE = 1.5
"""Batches taken from an iterator, on average, below which it is taken one of and dropped."""

MOST = 0.5
"""Share of loading for a line to be its place, of waiting for iterators to be its cause."""

LEAST_STARTS = 3
"""Iterators that must begin in the timing pass: one or two may be the ends of long epochs."""


@dataclass(frozen=True)
class Slow:
    """Why it is slow: where, what to add to the finding's sentence, and what to do."""

    site: Site
    said: str
    advice: str
    kind: str
    facts: tuple[tuple[str, str], ...] = ()


def cause(loader: Loader, starts: Starts, loading: Loading) -> Slow | None:
    """The first of: an iterator for each batch, workers for each short epoch, a dear line."""
    return (
        begun_for_each_batch(loader, starts, loading)
        or started_for_each_epoch(loader, starts)
        or costliest_line(loader, loading)
    )


def begun_for_each_batch(loader: Loader, starts: Starts, loading: Loading) -> Slow | None:
    """The line that makes an iterator per batch, which drops loaded work or draws orders again."""
    site = loader.iter_at or loader.consumed_at
    dropped = starts.made >= LEAST_STARTS and starts.batches_each < ONE and loader.length != 1
    if not dropped or site is None or starts.share < MOST:
        return None
    if loader.workers:
        costs = f"restarts its {_workers(loader)} and drops what they had prefetched"
    elif loading.phase_share(loader.number, "sampler") >= MOST:
        costs = "draws the order of the whole dataset again"
    else:
        return None
    return Slow(
        site,
        f"a new iterator is created here for each batch, which {costs}",
        "Create one iterator before the steps (`batches = iter(loader)`), take `next(batches)` here, "
        "and create another one only when it raises StopIteration.",
        "iterator",
        _made(loader, site),
    )


def started_for_each_epoch(loader: Loader, starts: Starts) -> Slow | None:
    """The line that creates a loader whose workers are restarted for each short epoch."""
    often = starts.made >= LEAST_STARTS and starts.share >= MOST
    if not loader.workers or loader.persistent or not often or loader.made_at is None:
        return None
    return Slow(
        loader.made_at,
        f"{amounts.percent(starts.share)} of that goes to starting and ending its {_workers(loader)} "
        f"every {starts.batches_each:.3g} batches",
        "Keep the workers between epochs with persistent_workers=True, or make the epochs longer.",
        "epoch",
    )


def _workers(loader: Loader) -> str:
    return f"{loader.workers} workers" if loader.workers > 1 else "worker"


# -- a dear line -----------------------------------------------------------------------------------

PHASES = {
    "dataset": "creating samples",
    "collate": "collating samples",
    "sampler": "drawing indices",
    "other": "loading",
}


def costliest_line(loader: Loader, loading: Loading) -> Slow | None:
    """The line that takes most of the loading time; None if none does."""
    found = loading.costliest(loader.number, MOST)
    if found is None:
        return None
    made = loader.made_at if loader.made_at != found.site else None
    of = f" of the loader created at {made}" if made is not None else ""
    what = f"{found.function}, most of it this line" if found.function else "this line"
    return Slow(
        found.site,
        f"{amounts.percent(found.share)} of the loading time{of} goes to {what} ({PHASES[found.phase]})",
        _advice(found),
        "line",
        _made(loader, found.site),
    )


def _made(loader: Loader, site: Site) -> tuple[tuple[str, str], ...]:
    if loader.made_at is None or str(loader.made_at) == str(site):
        return ()
    return (("loader", str(loader.made_at)),)


def _advice(found: Costliest) -> str:
    if found.phase == "sampler":
        return (
            "Draw the indices of many batches at once, before the epoch starts (one permutation, "
            "cut into batches), instead of searching the whole dataset for each batch."
        )
    return (
        "Make this line cheaper: do it once for the whole dataset (read, decode, tokenize) and keep "
        "the result."
    )


ALONE = "loader_alone_us"
STAY = "the workers keep their copies of the dataset and their random state between epochs"
OPEN_FILE = (
    "the dataset keeps a file open, whose position worker processes would share: open it in each "
    "worker first, when the first sample is requested"
)
DRAWS = (
    "the dataset keeps a random generator, and worker processes would all draw the same numbers "
    "from their copies: seed one in each worker first"
)


CACHE = "Repair the key of that cache first: then no sample is created twice."

RESTARTED = 0.1
"""Share of the time, where most of it is restarting the workers for each short epoch."""

HANDED_US = 3000.0
"""To hand a batch over, processes wake one another: a shorter wait for workers is a note."""

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

    share: float = knob(0.2, "Warn if the step waits for at least this share of the timing pass.")
    severe: float = knob(0.4, "Report an error if it waits for at least this share of the pass.")
    least_us: float = knob(1000.0, "Ignore shorter mean waits, in us (in a trace: report a note).")

    def detect(
        self,
        batches: Batches,
        machine: Machine,
        source: Source,
        configs: Configs,
        loading: Loading,
        *,
        kept: Rows[WorkerKeptRow],
    ) -> Iterator[Finding]:
        batches.need_a_loader()
        batches.need_times()
        waiting = batches.waiting()
        why = None
        if waiting is not None:
            why = cause(waiting.loader, batches.starts(waiting.loader.number), loading)
        if waiting is None or not self._waits(waiting, why):
            at_most = None if waiting is None else waiting.at_most
            if at_most is not None and self._waits(at_most, None):
                raise NotLooked(
                    f"the machine was busy: the step waited for its loader for "
                    f"{amounts.percent(at_most.share)} of the time, but the loader's workers waited for a CPU"
                )
            return
        loader, slow = waiting.loader, waiting.steps_above(NOTICED)
        price = _price(waiting, batches.starts(loader.number), why)
        workers, made = _worth_trying(loader, machine.cpus), (loader.made_at, "DataLoader")
        because = f": {why.said}" if why is not None else ""
        cache = _missed_cache(loader, kept) if why is not None and why.kind == "line" else None
        if cache is not None:
            because += (
                f", and the cache that {cache.function} fills at line {cache.line} never hits"
            )
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
            places=places_of(why.site, loader.made_at)
            if why is not None and why.kind == "line" and workers
            else (),
            facts=why.facts if why is not None else (),
            remedy=Remedy(CACHE)
            if cache is not None
            else self._remedy(
                why,
                loader,
                workers,
                given(source, configs, *made, "num_workers", ran=loader.workers),
                given(source, configs, *made, "persistent_workers", ran=False),
            ),
        )
        yield between(found, price)

    def _waits(self, waiting: Waiting, why: Slow | None) -> bool:
        share = RESTARTED if why is not None and why.kind == "epoch" else self.share
        return waiting.mean_us >= self.least_us and share <= min(
            waiting.share, waiting.recurring_share
        )

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
            return (
                "; passing a batch from a worker process to the step may take that long by itself"
            )
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
        return replace(
            beside, text=f"{why.advice} Alternatively: {beside.text[0].lower()}{beside.text[1:]}"
        )

    def _beside(
        self, loader: Loader, workers: int, number: CallArgument, persistent: CallArgument
    ) -> Remedy:
        """Loading in more workers."""
        if not workers:
            refused = OPEN_FILE if loader.open_file else DRAWS if loader.draws else None
            return Remedy(self.advice, refused=refused)
        reason = (
            "dataset and collate function run in worker processes: they must be picklable, and "
            "they draw other random numbers"
        )
        text = f"Load in parallel with the step, with {workers} persistent worker processes."
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


def _missed_cache(loader: Loader, kept: Iterable[WorkerKeptRow]) -> WorkerKeptRow | None:
    """Where its dataset stores samples that are fetched again."""
    own = f"{loader.dataset}."
    return next((each for each in kept if each.fetched and each.function.startswith(own)), None)


def _worth_trying(loader: Loader, cpus: int) -> int:
    """Workers worth trying; 0 if more would not help, would repeat data, or there is no line."""
    wanted = (
        loader.workers == 0
        and not loader.open_file
        and not loader.draws
        and loader.length is not None
        and loader.made_at is not None
        and cpus > 1
    )
    return min(4, cpus) if wanted else 0


def _bursts(often: int, steps: int) -> str:
    return f", in bursts: on {often} of {steps} steps" if 2 * often < steps else ""
