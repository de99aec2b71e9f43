"""NUM009 and 14: gradients that grow without end, and anomaly mode left on."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from auditor import amounts
from auditor.batch_means import Estimate
from auditor.evidence.recorded.reads import framework_of
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, the_only
from auditor.evidence.table import Evidence, Rows, Table, rows_of
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.schema.numerics import ModeRow
from auditor.rule import Rule, knob
from auditor.syntax.index import names_in

from ..lines import between
from .rows import NormRow

OFF = "set_detect_anomaly(False)"


@dataclass(frozen=True)
class AnomalyModeLeftOn(Rule):
    """Anomaly mode is left on."""

    code = "NUM009"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.5, "Report if at least this share of the steps runs under anomaly mode.")

    def detect(
        self, modes: DebugModes, steps: Steps, source: Source, configs: Configs
    ) -> Iterator[Finding]:
        seen, site = modes.anomaly_rhythm, modes.anomaly_site
        if not seen.usual(self.share):
            return
        asked = _asked(modes, source, configs)
        price = steps.saved_with_anomaly_off()
        saved = price.value if price is not None and price.value > 0.0 else None
        found = Finding(
            site if asked is None else asked.site,
            f"anomaly mode is on for the backward of {seen}{_gain(price, steps)}"
            + (f": {asked.said}" if asked is not None and asked.written else ""),
            steps=len(seen.seen),
            per_step=modes.anomaly_backwards,
            lost_us_per_step=saved,
            basis="none" if saved is None else "measured",
            facts=_facts(modes),
            remedy=_remedy(site, asked, source),
        )
        yield found if saved is None else between(found, price)


def _remedy(site: Site | None, asked: CallArgument | None, source: Source) -> Remedy:
    """Of the call on the line that switches it on, or of what that is ``asked``."""
    text = "Leave anomaly mode off; turn it on only for a step that you want explained."
    safe = not any(map(_takes_its_error, (each for _, each in source.every(ast.ExceptHandler))))
    reason = (
        "it only checks and reports: gradients are the same without it"
        if safe
        else "an `except` of the program may rely on the error that it raises"
    )
    if asked is not None:
        return asked.remedy(text, "False", safe=safe, reason=reason)
    call = "" if site is None else source.called(site, "set_detect_anomaly", "detect_anomaly")
    if site is None or not call:
        return Remedy(text)
    return Remedy(text, (Edit(site, "rename_call", call, value=OFF, safe=safe, reason=reason),))


def _takes_its_error(handler: ast.ExceptHandler) -> bool:
    caught = {"BaseException"} if handler.type is None else names_in(handler.type)
    return not caught.isdisjoint({"BaseException", "Exception", "RuntimeError"})


def _gain(price: Estimate | None, steps: Steps) -> str:
    """What holding it off gave, in words; or that the interval reaches zero: nothing is proven."""
    if price is None:
        return ""
    if price.proven:
        return (
            f"; without it a step is {amounts.duration(price.value)} faster "
            f"({amounts.percent(steps.share_of_step(price.value))})"
        )
    between_them = f"{amounts.duration(price.low)} and {amounts.duration(price.high)}"
    return (
        "; it is not proven that a step is faster without it (the difference is between "
        f"{between_them})"
    )


def _asked(modes: DebugModes, source: Source, configs: Configs) -> CallArgument | None:
    """What switched it on: a framework's argument, or an expression; None for a plain call."""
    if modes.anomaly_library:
        asked = source.only_asked("detect_anomaly")
        return None if asked is None else given(source, configs, *asked, "detect_anomaly", ran=True)
    called = given(source, configs, modes.anomaly_site, "set_detect_anomaly", "mode", ran=True)
    return called if called.written else None


def _facts(modes: DebugModes) -> tuple[tuple[str, str], ...]:
    facts = [("backward calls under it", f"{amounts.digits(modes.anomaly_backwards)} per step")]
    if modes.anomaly_library:
        facts.append(("switched on inside", modes.anomaly_library))
    return tuple(facts)


# -- debug modes -----------------------------------------------------------------------------------
# Switches that were left on: anomaly mode during backward passes.


@dataclass(frozen=True)
class DebugModes(Table):
    """Anomaly mode in the quiet pass, or in the loud pass where there was no quiet one."""

    parts: ClassVar[tuple[str, ...]] = ("modes", "steps")

    steps: int = 0
    anomaly: tuple[ModeRow, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> DebugModes:
        """From the quiet pass if any of its steps completed."""
        steps = evidence.get(Steps)
        name = "quiet" if steps.quiet else "loud"
        rows = tuple(
            row
            for row in evidence.get(Rows[ModeRow])
            if row.pass_name == name and row.what == "anomaly"
        )
        return cls(len(steps.of(name)), rows)

    @property
    def anomaly_rhythm(self) -> StepPattern:
        """On which steps a backward ran under anomaly mode."""
        return step_pattern({row.step for row in self.anomaly}, self.steps)

    @property
    def anomaly_backwards(self) -> float:
        """Backward calls under anomaly mode in each step, on average."""
        return sum(row.n for row in self.anomaly) / self.steps if self.steps else 0.0

    @property
    def anomaly_site(self) -> Site | None:
        """The line that switched it on for most steps; None if before the recorder looked."""
        sites = [row.site for row in self.anomaly if row.site is not None]
        return max(sites, key=sites.count, default=None)

    @property
    def anomaly_library(self) -> str:
        """The library's function that did so on that line's behalf; empty if there is none."""
        at = next((row.at for row in self.anomaly if row.site == self.anomaly_site), None)
        return "" if at is None else framework_of(self.anomaly[0].home.via(at))


RAISED = Remedy(
    "Let the scheduler's factor end at 1: a warm-up is min(1, (step + 1) / warmup) times the "
    "optimizer's learning rate, the highest that it should reach."
)
CLIPPED = Remedy(
    "Clipping only shortens a direction that is wrong by now. Lower the learning rate, or warm it "
    "up longer."
)


@dataclass(frozen=True)
class GradientsExplode(Rule):
    """Gradients explode: their norm grows out of range before the loss does."""

    code = "NUM014"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Lower the learning rate or warm it up; clip_grad_norm_ before the step limits what a bad "
        "batch can do."
    )

    decades: float = knob(2.0, "Report only if the norm grew by at least this many powers of ten.")
    late: float = knob(
        1.0, "Report only if at least this many powers of ten lie in the second half (no plateau)."
    )
    raised: float = knob(4.0, "Name a scheduler that raised the rate to at least this multiple.")

    def detect(self, norms: GradientNorms, source: Source) -> Iterator[Finding]:
        for series in norms.series:
            growth = series.growth
            if growth is None or growth.decades < self.decades or growth.late_decades < self.late:
                continue
            rates = series.rose(self.raised)
            made = None if rates is None else scheduler(source)
            risen = "" if rates is None or made is None else _risen(rates, series.base)
            over = "; then it was not finite" if len(series.finite) < len(series.points) else ""
            yield Finding(
                made or series.site,
                f"the gradient norm grew {_fold(growth.decades)}-fold in {growth.steps} steps, from "
                f"{growth.before:.3g} to {growth.after:.3g}, {_fold(growth.late_decades)}-fold in "
                f"the second half{over}{risen}",
                steps=len(series.finite),
                per_step=1.0,
                remedy=RAISED if made is not None else CLIPPED if series.clipped else None,
            )


def _risen(rates: tuple[float, float], base: float) -> str:
    return (
        f"; meanwhile the scheduler created here raised the learning rate from {rates[0]:.3g} "
        f"to {rates[1]:.3g}, {rates[1] / base:.3g} times its initial {base:.3g}"
    )


def _fold(decades: float) -> str:
    times = 10**decades
    return f"{times:,.0f}" if times < 1e6 else f"{times:.0e}"


# -- schedulers ------------------------------------------------------------------------------------
# Where the source makes its one scheduler of learning rates.


SCHEDULERS = tuple(
    """
    LambdaLR MultiplicativeLR LinearLR ExponentialLR OneCycleLR CyclicLR SequentialLR
    ChainedScheduler
    """.split()
)
"""Classes of ``torch.optim.lr_scheduler`` that can raise a rate."""


def scheduler(source: Source) -> Site | None:
    """The line that makes it, if the source makes one such scheduler and on one line."""
    made = [name for name in SCHEDULERS if source.first_call(name) is not None]
    name = the_only(made)
    return None if name is None else source.only_call(name)


# -- grad norms ------------------------------------------------------------------------------------
# Gradient norms, step after step: does one leave its range for good?


FEWEST = 10
"""Norms below which nothing is said about a trend."""

PARTS = 5
"""A series is compared by fifths: medians of them, which single spikes do not move."""


@dataclass(frozen=True)
class NormSeries:
    """Norms of one optimizer's gradients, by the run's step. ``site`` is where it steps."""

    site: Site | None
    points: tuple[tuple[int, float], ...]
    clipped: bool = False
    rates: tuple[float, ...] = ()
    """Learning rates at the points; empty if they are not known."""
    base: float = 0.0
    """The rate that a scheduler found; 0 without one."""

    def rose(self, fold: float) -> tuple[float, float] | None:
        """The first and the highest learning rate, if a scheduler raised it ``fold`` times above
        the first rate and above its initial one.
        """
        if not self.rates or self.base <= 0 or self.rates[0] <= 0:
            return None
        first, most = self.rates[0], max(self.rates)
        return (first, most) if most >= fold * max(first, self.base) else None

    @property
    def finite(self) -> tuple[tuple[int, float], ...]:
        """Those before the first that is not finite."""
        bad = next(
            (n for n, (_, norm) in enumerate(self.points) if not math.isfinite(norm)),
            len(self.points),
        )
        return self.points[:bad]

    @property
    def growth(self) -> Growth | None:
        """How it grew; None with too few points, or where a norm is 0 (no gradient yet)."""
        points = [(step, math.log10(norm)) for step, norm in self.finite if norm > 0]
        if len(points) < FEWEST or len(points) < 0.9 * len(self.finite):
            return None
        size = len(points) // PARTS
        first, middle, last = (
            median(norm for _, norm in points[begin : begin + size])
            for begin in (0, 2 * size, len(points) - size)
        )
        return Growth(
            points[-1][0] - points[0][0], 10**first, 10**last, last - first, last - middle
        )


@dataclass(frozen=True)
class Growth:
    """In ``steps`` steps, from the typical norm of the first fifth to that of the last; ``decades``
    and ``late_decades`` are powers of ten, over all of it and since the middle fifth.
    """

    steps: int
    before: float
    after: float
    decades: float
    late_decades: float


@dataclass(frozen=True)
class GradientNorms(Table):
    """One series for each optimizer."""

    parts: ClassVar[tuple[str, ...]] = ("norms",)
    of_values: ClassVar[bool] = True
    absent: ClassVar[Mapping[str, str]] = {"norms": "no optimizer stepped while the auditor looked"}

    series: tuple[NormSeries, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> GradientNorms:
        rows = sorted(rows_of(evidence, NormRow), key=lambda row: (row.optimizer, row.global_step))
        return cls(tuple(_series(evidence, rows)))


def _series(evidence: Evidence, rows: list[NormRow]) -> Iterator[NormSeries]:
    for number in sorted({row.optimizer for row in rows}):
        mine = [row for row in rows if row.optimizer == number]
        at = next((row.at for row in mine if row.at is not None), None)
        points = tuple((row.global_step, float(row.norm)) for row in mine)
        yield NormSeries(
            None if at is None else evidence.recording.site(at),
            points,
            any(row.clipped for row in mine),
            tuple(row.rate for row in mine),
            mine[-1].base,
        )
