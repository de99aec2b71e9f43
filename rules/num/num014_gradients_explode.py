"""NUM014: gradients that grow without end, before the loss goes with them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import ClassVar

from auditor import amounts
from auditor.evidence.source.files import Source, the_only
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

from .rows import NormRow

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

    decades: float = knob(2.0, "Report only if the norm grew by this many powers of ten.")
    late: float = knob(
        1.0,
        "Report only if this many of them lie in the second half (growth that levels off is silent).",
    )
    rising: float = knob(
        0.9, "Report only if the later norm is larger in this share of pairs of the second half."
    )
    raised: float = knob(
        4.0, "Name a scheduler only if it raised the learning rate to this multiple of its base."
    )

    def detect(self, norms: GradientNorms, source: Source) -> Iterator[Finding]:
        for series in norms.series:
            growth = series.growth
            if (
                growth is None
                or growth.decades < self.decades
                or growth.late_decades < self.late
                or growth.rising < self.rising
            ):
                continue
            rates = series.rose(self.raised)
            made = None if rates is None else scheduler(source)
            risen = "" if rates is None or made is None else _risen(rates, series.base)
            steps_at = () if made is None or series.site is None else (str(series.site),)
            tenfold = max(1.0, growth.late_steps / growth.late_decades)
            over = "; then it was not finite" if len(series.finite) < len(series.points) else ""
            yield Finding(
                made or series.site,
                f"the gradient norm grew {_fold(growth)}-fold in {growth.steps} steps, from "
                f"{growth.before:.3g} to {growth.after:.3g}, and still grows tenfold every "
                f"{tenfold:.0f} steps{over}{risen}",
                steps=len(series.finite),
                per_step=1.0,
                facts=(
                    *_facts(series, growth),
                    *(("the optimizer steps at", each) for each in steps_at),
                ),
                remedy=RAISED if made is not None else CLIPPED if series.clipped else None,
            )


def _risen(rates: tuple[float, float], base: float) -> str:
    return (
        f"; meanwhile the scheduler created here raised the learning rate from {rates[0]:.3g} "
        f"to {rates[1]:.3g}, {rates[1] / base:.3g} times its initial {base:.3g}"
    )


def _fold(growth: Growth) -> str:
    times = 10**growth.decades
    return f"{times:,.0f}" if times < 1e6 else f"{times:.0e}"


def _facts(series: NormSeries, growth: Growth) -> tuple[tuple[str, str], ...]:
    return (
        (
            "steps observed",
            f"{growth.first_step} to {growth.last_step} (from 0, warm-up included)",
        ),
        ("norms taken", "before clipping" if series.clipped else "as the optimizer stepped"),
        ("largest norm", f"{max(norm for _, norm in series.finite):.4g}"),
        ("later above earlier", f"{amounts.percent(growth.rising)} of pairs in the second half"),
    )


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
    """Learning rates at the points; empty where they are not known."""
    base: float = 0.0
    """The rate that a scheduler found; 0 without one."""

    def rose(self, fold: float) -> tuple[float, float] | None:
        """The first and the highest learning rate, where a scheduler raised it so many times, and
        so many times above the one that it found.
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
        points = [(step, norm) for step, norm in self.finite if norm > 0]
        if len(points) < FEWEST or len(points) < 0.9 * len(self.finite):
            return None
        size = len(points) // PARTS
        halfway = (points[0][0] + points[-1][0]) / 2  # by steps: not all passes look at each
        near = next(n for n, (step, _) in enumerate(points) if step >= halfway)
        middle = min(near, len(points) - 2 * size)
        logs = [math.log10(norm) for _, norm in points]
        first, half, last = (
            median(part) for part in (logs[:size], logs[middle : middle + size], logs[-size:])
        )
        apart = median(step for step, _ in points[-size:]) - median(
            step for step, _ in points[middle : middle + size]
        )
        late = logs[middle:]
        pairs = list(combinations(late, 2))
        rising = sum(after > before for before, after in pairs) / len(pairs)
        return Growth(
            points[0][0],
            points[-1][0],
            10**first,
            10**last,
            last - first,
            last - half,
            apart,
            rising,
        )


@dataclass(frozen=True)
class Growth:
    """From the typical norm of the first fifth to that of the last.

    ``decades`` and ``late_decades`` are powers of ten, over all of it and since its middle,
    ``late_steps`` before; ``rising`` is the share of pairs in its second half of which the later is
    the larger (0.5: no trend).
    """

    first_step: int
    last_step: int
    before: float
    after: float
    decades: float
    late_decades: float
    late_steps: float
    rising: float

    @property
    def steps(self) -> int:
        """Steps from the first to the last."""
        return self.last_step - self.first_step


@dataclass(frozen=True)
class GradientNorms(Table):
    """One series for each optimizer."""

    parts: ClassVar[tuple[str, ...]] = ("norms",)
    of_values: ClassVar[bool] = True
    absent: ClassVar[Mapping[str, str]] = {"norms": "no optimizer stepped while the auditor looked"}

    series: tuple[NormSeries, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> GradientNorms:
        """From all passes that were watched."""
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
