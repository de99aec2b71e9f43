"""How long the operators of some lines would keep the forecast GPU busy: of work that a finding says
nobody needs, where all that ran on these lines is such work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from auditor.evidence.recorded.operators import OrderedOperators, RanOperators
from auditor.evidence.recorded.thrown_work import ThrownWork
from auditor.evidence.table import Evidence
from auditor.extensions.forecast.rehearsed import call_of
from auditor.model import Finding, Site
from auditor.model.forecasts import Forecast
from auditor.rule import NotLooked

WASTED: Mapping[str, tuple[str, ...]] = {
    "WASTE001": ("gradient", "detach"),
    "WASTE002": ("result",),
    "WASTE004": ("constant",),
    "WASTE005": ("repeat", "again"),
}
"""Rules about operators that nobody needs, and the kinds of :class:`ThrownWork` that they tell of."""
LOOPED = "OPT001"
"""The rule about an optimizer's operators that run one parameter after the other."""

LEAST_COVERED = 0.8
"""Share of the predicted time in fitted classes, below which nothing is said of a step either."""

Line = tuple[str, int]


@dataclass(frozen=True)
class Busy:
    """What the operators of some lines keep the GPU busy with in each step."""

    gpu: str
    operators: float
    covered: float
    low_us: float
    high_us: float


@dataclass(frozen=True)
class Lines:
    """A rehearsed step by line, on the GPU that was chosen."""

    order: OrderedOperators
    ran: RanOperators
    thrown: ThrownWork | None
    gpu: str
    most_us: float
    """What the whole step keeps the GPU busy with at most: no part of it does so for longer."""

    @classmethod
    def of(cls, rehearsed: Evidence, forecast: Forecast | None) -> Lines | None:
        """None where nothing is forecast, or the order was not recorded."""
        chosen = forecast.gpus[0] if forecast is not None and forecast.gpus else None
        if chosen is None or chosen.low_us is None or chosen.high_us is None:
            return None
        try:
            order, ran = rehearsed.get(OrderedOperators), rehearsed.get(RanOperators)
        except NotLooked:
            return None
        try:
            thrown: ThrownWork | None = rehearsed.get(ThrownWork)
        except NotLooked:
            thrown = None
        return cls(order, ran, thrown, chosen.gpu, chosen.high_us) if order.whole else None

    def needless(self, finding: Finding) -> float:
        """Operators per step that the finding is about."""
        kinds = WASTED.get(finding.code, ())
        at = _line(finding.site)
        found = () if self.thrown is None else self.thrown.of(*kinds)
        return sum(each.operators for each in found if _line(each.site) == at)

    def busy(self, sites: Iterable[Site]) -> Busy | None:
        """None where none of the lines ran an operator on the GPU."""
        from auditor.extensions.forecast.forecasting import parts_us

        lines = set(map(_line, sites))
        counts: Counter[int] = Counter()
        for step in self.order.steps:
            counts.update(
                number for number, site in step if _line(site) in lines and self._known(number)
            )
        if not counts:
            return None
        calls = [call_of(self.order.described[number], n) for number, n in counts.items()]
        part = parts_us(
            calls,
            self.gpu,
            steps=len(self.order.steps),
            tf32_matmul=self.ran.tf32_matmul,
            tf32_conv=self.ran.tf32_conv,
        )
        operators = sum(counts.values()) / len(self.order.steps)
        upper = max(part.lower_us, min(part.upper_us, self.most_us))
        return Busy(self.gpu, operators, part.covered, part.lower_us, upper)

    def _known(self, number: int) -> bool:
        return number in self.order.described


def _line(site: Site | None) -> Line:
    return (site.file, site.line) if site is not None else ("", 0)
