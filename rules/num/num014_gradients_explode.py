"""NUM014: gradients that grow without end, before the loss goes with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

from .grad_norms import GradientNorms, Growth, NormSeries
from .schedulers import scheduler


@dataclass(frozen=True)
class Hints:
    """Whether the program clips its gradients, and whether a scheduler raised the rate."""

    clipped: bool
    raised: bool = False


@dataclass(frozen=True)
class GradientsExplode(Rule):
    """Gradients explode: their norm leaves its range before the loss does."""

    code = "NUM014"
    severity = Severity.WARNING
    since = "0.1"

    decades: float = knob(2.0, "Powers of ten that the norm must have grown by.")
    late: float = knob(
        1.0,
        "Powers of ten of them that must lie in the second half: growth that levels off is silent.",
    )
    rising: float = knob(
        0.9, "Share of pairs of norms in the second half of which the later must be the larger."
    )
    raised: float = knob(
        4.0,
        "Times its base that a scheduler must have raised the learning rate to be named.",
    )

    def detect(self, norms: GradientNorms, machine: Machine, source: Source) -> Iterator[Finding]:
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
            yield Finding(
                made or series.site,
                f"the gradient norm grew {_fold(growth)}-fold in {growth.steps} steps, from "
                f"{growth.before:.3g} to "
                f"{growth.after:.3g}, and still tenfold every {_tenfold(growth):.0f} "
                f"steps{_after(series)}{risen}",
                steps=len(series.finite),
                per_step=1.0,
                seen_on=machine.device,
                facts=(*_facts(series, growth), *_steps_at(made, series.site)),
                hints=Hints(series.clipped, made is not None),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        if finding.hints_as(Hints).raised:
            return Remedy(
                "Let the factor of the scheduler end at 1: a warm-up is min(1, (step + 1) / warmup) "
                "times the rate of the optimizer, which is the highest that it should reach."
            )
        if finding.hints_as(Hints).clipped:
            return Remedy(
                "Clipping only shortens a direction that is wrong by now: lower the learning rate, "
                "or warm it up longer."
            )
        return Remedy(
            "Lower the learning rate or warm it up; clip_grad_norm_ before the step bounds what a "
            "bad batch can do."
        )


def _risen(rates: tuple[float, float], base: float) -> str:
    return (
        f"; meanwhile the scheduler that is made here raised the learning rate from {rates[0]:.3g} "
        f"to {rates[1]:.3g}, {rates[1] / base:.3g} times the {base:.3g} that it found"
    )


def _steps_at(made: Site | None, steps: Site | None) -> tuple[tuple[str, str], ...]:
    """Where the optimizer steps, if another line is named."""
    return () if made is None or steps is None else (("the optimizer steps at", str(steps)),)


def _tenfold(growth: Growth) -> float:
    """Steps for one power of ten, at the pace of the second half."""
    return max(1.0, growth.late_steps / growth.late_decades)


def _fold(growth: Growth) -> str:
    times = 10**growth.decades
    return f"{times:,.0f}" if times < 1e6 else f"{times:.0e}"


def _after(series: NormSeries) -> str:
    return "; then it was not finite" if len(series.finite) < len(series.points) else ""


def _facts(series: NormSeries, growth: Growth) -> tuple[tuple[str, str], ...]:
    return (
        (
            "steps looked at",
            f"{growth.first_step} to {growth.last_step} (from 0, warm-up included)",
        ),
        ("norms taken", "before clipping" if series.clipped else "as the optimizer stepped"),
        ("largest norm", f"{max(norm for _, norm in series.finite):.4g}"),
        ("later above earlier", f"{amounts.percent(growth.rising)} of pairs in the second half"),
    )
