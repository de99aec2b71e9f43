"""The audited steps, pass by pass: their times, the allocator's counters, the host's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.batch_means import BUSY, RUN_TO_RUN, Estimate, difference, median_of
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.evidence.trace import facts as traces
from auditor.model.charts import Series
from auditor.recordings.schema.run import DeviceTimeRow, StepRow, TrainingRow, known

if TYPE_CHECKING:
    from auditor.model import Training
    from auditor.timeline import Timeline


@dataclass(frozen=True)
class Step:
    """One completed step. Times in us, memory in bytes; allocator counters are None without CUDA.

    ``us`` is by device events where these timed it (``by_device``), else by the host's clock.
    """

    number: int
    us: float
    rss: int = 0
    allocated: int | None = None
    reserved: int | None = None
    peak_allocated: int | None = None
    retries: int = 0
    ooms: int = 0
    queued_us: float = 0.0
    """Time that the step's thread was ready while something else ran (0: not known)."""
    by_device: bool = False
    host_us: float = 0.0
    """Time by the host's clock; 0 if that is ``us`` itself."""
    compiles: int = 0
    """Frames that ``torch.compile`` compiled in it: its time is the compiler's."""

    @property
    def own_us(self) -> float:
        """Its time without waiting for the processor, between 0 and ``us``: what *measured* means
        everywhere.

        The device's own time stands as it is: its clock does not wait for a processor.
        """
        return self.us if self.by_device else self.us - min(max(self.queued_us, 0.0), self.us)


def own_times(steps: Sequence[Step]) -> tuple[float, ...]:
    """:attr:`Step.own_us` of each, in order. A step of which nothing is left tells no time, and one
    that compiled tells the compiler's: they are left out where others tell theirs.
    """
    own = [step for step in steps if not step.compiles] or steps
    return tuple(us for step in own if (us := step.own_us) > 0.0) or tuple(
        step.own_us for step in own
    )


def compiled_caution(steps: Sequence[Step]) -> str:
    """A sentence about the timed steps in which ``torch.compile`` compiled; empty without any."""
    n = sum(1 for step in steps if step.compiles)
    if not n:
        return ""
    if n == len(steps):
        return "torch.compile compiled in every timed step: their time is mostly the compiler's"
    return (
        f"torch.compile compiled in {n} of {len(steps)} timed steps: the step time leaves them out"
    )


def queued_share(steps: Sequence[Step]) -> float:
    """Share (0 to 1) of host time that these steps waited for a CPU; 0 if unknown."""
    host = sum(step.host_us or step.us for step in steps)
    return min(1.0, max(0.0, sum(step.queued_us for step in steps) / host)) if host > 0.0 else 0.0


@dataclass(frozen=True)
class Steps(Table):
    """Completed steps of the passes; any may be empty: a target may end early."""

    parts: ClassVar[tuple[str, ...]] = ("steps",)

    quiet: tuple[Step, ...] = ()
    loud: tuple[Step, ...] = ()
    anomaly_off: tuple[Step, ...] = ()
    eager_held: tuple[Step, ...] = ()
    compiled_again: tuple[Step, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> Steps:
        """From the ``steps`` part; where device events timed the step, theirs is its time."""
        rows = rows_of(evidence, StepRow)
        device_us = device_times(evidence)
        passes = {
            name: tuple(step_of(row, device_us) for row in rows if row.pass_name == name)
            for name in ("quiet", "loud", "anomaly_off", "eager_held", "compiled_again")
        }
        return cls(**passes)

    def of(self, name: str) -> tuple[Step, ...]:
        """Those of the pass of this name."""
        steps: tuple[Step, ...] = getattr(self, name)
        return steps

    @property
    def typical(self) -> Estimate | None:
        """Median quiet step in us with its interval, without queueing; None of too few."""
        return median_of(own_times(self.quiet), busy=queued_share(self.quiet))

    def share_of_step(self, us: float) -> float:
        """``us`` as a share of the mean quiet step; 0 if there is no time."""
        own = own_times(self.quiet)
        return us * len(own) / sum(own) if sum(own) else 0.0

    def saved_with_anomaly_off(self) -> Estimate | None:
        """How many us a step is faster with anomaly mode held off; None if that was not measured,
        or on too few steps.

        The two passes follow one another in one process: :func:`auditor.batch_means.difference` has
        the interval.
        """
        return _saved(self.quiet, self.anomaly_off)

    def gained_by_compile(self) -> Estimate | None:
        """How many us a step is slower with ``torch.compile`` held off; negative where compiling
        does not pay, None if it was not measured, or on too few steps. As above.

        Where compiled steps were timed again after those, the interval holds both differences: a
        machine that was busy during the first pass alone shows in one of them.
        """
        sides = (_saved(self.eager_held, each) for each in (self.quiet, self.compiled_again))
        both = [each for each in sides if each is not None]
        if not both:
            return None
        return Estimate(
            fmean(each.value for each in both),
            min(each.low for each in both),
            max(each.high for each in both),
        )

    def slower_after(self, number: int) -> Estimate | None:
        """Us that quiet steps after this one are slower; None of too few on a side."""
        before = [step for step in self.quiet if step.number < number]
        return _saved([step for step in self.quiet if step.number > number], before)


def _saved(more: Sequence[Step], less: Sequence[Step]) -> Estimate | None:
    busy = queued_share(more), queued_share(less)
    return difference(own_times(more), own_times(less), busy=busy)


_Times = Mapping[tuple[str, int], float]


def device_peak(steps: Sequence[StepRow], unknown: int | None = None) -> int | None:
    """Most bytes that tensors on the device needed at once; ``unknown`` if no step counted."""
    return max(
        (peak for row in steps if (peak := known(row.peak_allocated)) is not None), default=unknown
    )


def device_times(evidence: Evidence) -> _Times:
    """Us of the steps that device events timed, by pass and number in it."""
    return {(row.pass_name, row.step): row.us for row in evidence.rows(DeviceTimeRow)}


def step_of(row: StepRow, timed: _Times) -> Step:
    """A row as a step; ``timed`` holds the times by device events."""
    device_us = timed.get((row.pass_name, row.step))
    host_us = max(0.0, float(row.us))
    us = host_us if device_us is None else max(0.0, device_us)
    # Older recordings read the count outside the step's time, so that it could be the larger of the
    # two.
    queued_us = min(max(0.0, row.queued_us), host_us)
    return Step(
        number=row.step,
        us=us,
        rss=known(row.rss) or 0,
        allocated=known(row.allocated),
        reserved=known(row.reserved),
        peak_allocated=known(row.peak_allocated),
        retries=known(row.retries) or 0,
        ooms=known(row.ooms) or 0,
        queued_us=queued_us,
        by_device=device_us is not None,
        host_us=host_us,
        compiles=row.compiles,
    )


# -- cpu contention --------------------------------------------------------------------------------
# Whether the machine was busy while the steps were timed: how long they waited for a processor,
# and how much they vary without it.


QUEUED = RUN_TO_RUN / BUSY
"""Share of the steps' time spent waiting for a processor (0.1) from which the machine counts as
busy: from there on what others take beside the wait (caches, the other half of a core) moves a
median by more than runs on a quiet machine differ."""

SOMEWHAT, UNEVEN = 0.03, 1.5
"""From a smaller share on it counts as busy too where the steps vary much: their third quartile is
this many times the first. Without any waiting a wide spread is the program's own, and nothing is
said."""

ENOUGH = 10
"""Steps below which quartiles say nothing."""


@dataclass(frozen=True)
class CpuContention:
    """``queued`` is the share (0 to 1) of the steps' time in which they waited; ``uneven`` the
    third quartile over the first.
    """

    queued: float = 0.0
    uneven: float = 1.0

    @classmethod
    def of(cls, steps: tuple[Step, ...]) -> CpuContention:
        """Of the steps of a pass without instruments."""
        us = own_times(steps)
        low, _, high = quantiles(us, n=4) if len(us) >= ENOUGH else (1.0, 1.0, 1.0)
        return cls(queued_share(steps), high / low if low > 0.0 else 1.0)

    @property
    def busy(self) -> bool:
        """Other work had the CPUs long enough to make all times less certain."""
        return self.queued >= QUEUED or (self.queued >= SOMEWHAT and self.uneven >= UNEVEN)

    @property
    def caution(self) -> str:
        """One sentence for whoever reads the findings; empty on a quiet machine."""
        if not self.busy:
            return ""
        return (
            f"the machine was busy: steps waited for a CPU {amounts.percent(self.queued)} of the time "
            "(measured times exclude that). Do not trust small differences; audit again on an idle "
            "machine or on reserved CPUs (taskset)"
        )


# -- training --------------------------------------------------------------------------------------

NO_SIGN = "no backward and no optimizer step ran, and no parameter changed"


@dataclass(frozen=True)
class Trained(Table):
    """What was seen in ``steps`` steps. ``sign`` is the first sign of training: ``optimizer``,
    ``backward``, ``parameters``.

    Without one, ``operators`` and ``graphs`` say how many operators of torch ran in the ``watched``
    steps, and how many of those built an autograd graph.
    """

    parts: ClassVar[tuple[str, ...]] = ("training",)

    steps: int
    sign: str
    watched: int = 0
    operators: int = 0
    graphs: int = 0

    @classmethod
    def build(cls, evidence: Evidence) -> Trained:
        """From the probe's row at its end; without one (killed) nothing is said against it."""
        row = next(iter(rows_of(evidence, TrainingRow)), None)
        steps = len(evidence.rows(StepRow))
        if row is None:
            return cls(steps, "unknown")
        return cls(steps, row.sign, row.watched, row.operators, row.graphs)

    @property
    def state(self) -> Training:
        """``forward`` and ``evaluated`` are no training: the purpose of a forward alone is unknown.

        The report is written in each case; the exit code is 2 for all three (docs/outputs.md).
        """
        if self.sign:
            return "trained"
        if self.watched and not self.operators:
            return "nothing"
        return "forward" if self.graphs else "evaluated"

    @property
    def caveat(self) -> str:
        """What was seen and what to do, in one sentence; empty if something was trained."""
        seen = f"the target trained nothing in {amounts.count(self.steps, 'step')}"
        name_it = "name the callable that takes one training step (package.module:callable)"
        if self.state == "nothing":
            watched = amounts.count(self.watched, "watched step")
            return (
                f"{seen}: no operator of torch ran in {watched}, and {NO_SIGN}; {name_it}, or "
                "raise --warmup if it learns later"
            )
        if self.state == "forward":
            return (
                f"{seen}: torch built autograd graphs, but {NO_SIGN}; if it learns only every N "
                f"steps give --steps above N, if it evaluates use torch.no_grad(), else {name_it}"
            )
        if self.state == "evaluated":
            ran = "torch ran, but " if self.operators else ""
            return (
                f"{seen}: {ran}{NO_SIGN}, so this audits an evaluation or a rollout; to audit "
                f"training {name_it}"
            )
        return ""


# -- step series -----------------------------------------------------------------------------------
# Step times and memory as the lines of a report's charts.


TIMED = {
    "quiet": amounts.pass_named("quiet"),
    "anomaly_off": "anomaly mode held off",
    "eager_held": "torch.compile held off",
    "compiled_again": "compiled again",
    "warmup": "warm-up",
}
"""Passes without instruments, and their line's name: steps of others take longer."""


def step_series(evidence: Evidence, steps: Sequence[StepRow]) -> tuple[Series, ...]:
    """Step times of the passes without instruments, as the report's other times without waiting for
    the processor, then device and host memory at the end of each step.

    All know the step that did not complete, where one ended the run.
    """
    ended = _ended(evidence)
    timed = not evidence.recording.device.simulated
    times = _times(steps, device_times(evidence)) if timed else ()
    return tuple(replace(line, ended=ended) for line in (*times, *_memory(steps)))


def _ended(evidence: Evidence) -> tuple[float, str] | None:
    error = evidence.recording.manifest.get("error") or {}
    step = evidence.recording.ended_in
    return (
        None
        if step is None
        else (
            float(step),
            str(error.get("type") or evidence.recording.manifest.get("outcome") or ""),
        )
    )


def traced_series(line: Timeline | None) -> tuple[Series, ...]:
    """Step times of a trace that stands alone."""
    us = traces.step_us(line) if line is not None else ()
    if line is None or not us:
        return ()
    return (Series("in the trace", "us", tuple(map(float, line.steps.numbers)), us),)


def _times(steps: Sequence[StepRow], timed: Mapping[tuple[str, int], float]) -> Iterator[Series]:
    for name, said in TIMED.items():
        numbered = [
            (number, step_of(row, timed).own_us)
            for number, row in enumerate(steps)
            if row.pass_name == name
        ]
        if numbered:
            numbers, own_us = zip(*numbered, strict=True)
            yield Series(said, "us", tuple(map(float, numbers)), own_us)


def _memory(steps: Sequence[StepRow]) -> Iterator[Series]:
    for field, label in (
        ("allocated", "device memory allocated"),
        ("reserved", "device memory reserved"),
        ("rss", "host memory (resident)"),
    ):
        # Instruments hold host memory of their own: a chart of it with them would show us, not the
        # program.
        own = [
            (number, row)
            for number, row in enumerate(steps)
            if field != "rss" or row.pass_name in TIMED
        ]
        found = [
            (number, float(held))
            for number, row in own
            if (held := known(getattr(row, field))) is not None
        ]
        if found:
            numbers, held_bytes = zip(*found, strict=True)
            yield Series(label, "bytes", tuple(map(float, numbers)), held_bytes)
