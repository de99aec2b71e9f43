"""Prices of a rehearsal's findings, as far as one can be known without a GPU: intervals, lower
bounds, or the reason why there is none.

Whoever waits or launches loses what the host's pace makes of it, and that was not measured beside a
GPU. What can be said: a copy that is left out gives back its own time at least; and all waits of a
step together cost no more than the time in which the GPU is busy, since a step in which host and
GPU take turns takes the sum of both, and one without waits at least the longer of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from auditor import amounts
from auditor.evidence.recorded.operators import OrderedOperators, RanOperators
from auditor.evidence.recorded.thrown_work import ThrownWork
from auditor.evidence.table import Evidence
from auditor.extensions.forecast.model import part_us
from auditor.extensions.forecast.step import forecast as forecast_of
from auditor.extensions.forecast.step import rehearsal_of, step_of
from auditor.judging.null_beside import WAITS
from auditor.model import Finding, Site
from auditor.model.forecasts import Forecast
from auditor.recordings.schema.sync import CopyRow, DeviceUseRow
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

LEFT_OUT = frozenset({"SYNC010", "SYNC011"})
"""Rules whose fix leaves a blocking copy to the device out."""
UNREAD = "WASTE003"
"""The same of a copy whose result nobody reads."""
PACED = WAITS | set(
    "DATA003 DATA004 DATA009 KERN006 NUM009 OPT001 OPT002 OPT004 SYNC007 SYNC009".split()
)
"""Rules about what the host waits for or launches."""

MOST_GBS, LEAST_GBS = 64.0, 2.0
"""GB/s (1e9 bytes) of a copy from the host: none is faster than PCIe 5.0 x16 (32 GT/s on 16 lanes,
64 GB/s less its encoding: PCI-SIG). The slowest copy of at least 1 MiB in the open recordings ran
at 4.3 GB/s; half of that is taken."""
LEAST_COPY_US, MOST_COPY_US = 0.3, 20.0
"""What a copy takes beside its bytes: the shortest in the open recordings took 0.38 us; Mark Harris,
"How to Optimize Data Transfers in CUDA C/C++" (NVIDIA, 2012) has about 10 us, which is doubled."""

LEAST_SHARE = 0.001
"""Share of the busy time below which a lower bound is no price: the wait that comes with the copy
may cost any multiple of it."""

PACE = "what it costs needs the host's pace on a machine with a GPU"
Line = tuple[str, int]


@dataclass(frozen=True)
class _Busy:
    """What the operators of some lines keep the GPU busy with in each step."""

    operators: float
    low_us: float
    high_us: float


@dataclass(frozen=True)
class _Lines:
    """A rehearsed step by line, on the GPU that was chosen."""

    order: OrderedOperators
    ran: RanOperators
    thrown: ThrownWork | None
    gpu: str
    most_us: float
    """What the whole step keeps the GPU busy with at most: no part of it does so for longer."""

    @classmethod
    def of(cls, rehearsed: Evidence, forecast: Forecast | None) -> _Lines | None:
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

    def busy(self, sites: Iterable[Site]) -> _Busy | None:
        """None where none of the lines ran an operator on the GPU that is known."""
        lines, steps = set(map(_line, sites)), self.order.steps
        counts = Counter(
            number
            for step in steps
            for number, site in step
            if _line(site) in lines and number in self.order.described
        )
        calls = ((self.order.described[number], n) for number, n in counts.items())
        between = part_us(step_of(self.ran, calls, len(steps)), self.gpu)
        if between is None:
            return None
        low, high = between
        return _Busy(counts.total() / len(steps), low, max(low, min(high, self.most_us)))


@dataclass(frozen=True)
class _Known:
    """Bytes and copies to the device in a step by line, and the bytes of copies nobody reads."""

    copied: Mapping[Line, tuple[float, float]] = field(default_factory=dict)
    unread: Mapping[Line, tuple[float, float]] = field(default_factory=dict)
    lines: _Lines | None = None


def priced(
    evidence: Evidence, findings: tuple[Finding, ...], faults: list[str]
) -> tuple[Forecast | None, tuple[Finding, ...]]:
    """The forecast of a rehearsed step, and its findings with what can be said of their price;
    others as they are.
    """
    forecast = forecast_of(evidence, faults)
    return forecast, prices(evidence, findings, forecast)


def prices(
    evidence: Evidence, findings: tuple[Finding, ...], forecast: Forecast | None
) -> tuple[Finding, ...]:
    """The findings with prices by a forecast."""
    rehearsed = rehearsal_of(evidence)
    if rehearsed is None or not any(map(_open, findings)):
        return findings
    known = _Known(_copied(rehearsed), _unread(rehearsed), _Lines.of(rehearsed, forecast))
    return tuple(_priced(each, known, forecast) if _open(each) else each for each in findings)


def _open(finding: Finding) -> bool:
    """Whether a price in time is missing that a GPU would show."""
    return (
        finding.seen_on in {"rehearsal", "null"}
        and finding.basis == "none"
        and (finding.code in PACED or finding.code == UNREAD or finding.code in WASTED)
    )


def _copied(rehearsed: Evidence) -> dict[Line, tuple[float, float]]:
    steps = len({row.step for row in rehearsed.rows(DeviceUseRow) if row.pass_name == "loud"})
    found: dict[Line, tuple[float, float]] = {}
    for row in rehearsed.rows(CopyRow) if steps and rehearsed.has(CopyRow.part) else ():
        if row.pass_name == "loud" and row.blocking:
            site = rehearsed.recording.site(row.at)
            size, n = found.get((site.file, site.line), (0.0, 0.0))
            found[site.file, site.line] = (size + row.bytes / steps, n + row.n / steps)
    return found


def _unread(rehearsed: Evidence) -> dict[Line, tuple[float, float]]:
    try:
        thrown = rehearsed.get(ThrownWork)
    except NotLooked:
        return {}
    return {
        (each.site.file, each.site.line): (float(each.nbytes), max(1.0, each.operators))
        for each in thrown.of("copy")
    }


def _priced(finding: Finding, known: _Known, forecast: Forecast | None) -> Finding:
    if finding.code in WASTED:
        return _wasted(finding, known.lines)
    if finding.code == LOOPED and known.lines is not None:
        finding = _looped(finding, known.lines)
    table = known.unread if finding.code == UNREAD else known.copied
    sites = [finding.site, *(place.site for place in finding.places)]
    copies = [table[line] for line in dict.fromkeys(map(_line, sites)) if line in table]
    if copies and finding.code in LEFT_OUT | {UNREAD}:
        return _copy(finding, copies, forecast)
    return replace(finding, unpriced=_pace(finding, forecast))


NO_ORDER = "no GPU is forecast for this step (the forecast says why), so its operators have no time"
NOT_THERE = "no operator of these lines runs on the GPU"


def _wasted(finding: Finding, lines: _Lines | None) -> Finding:
    """What its operators keep the GPU busy with, where nobody needs any of those on its lines."""
    if lines is None:
        return replace(finding, unpriced=NO_ORDER)
    sites = [finding.site] if finding.site is not None else []
    busy = lines.busy(sites)
    if busy is None:
        return replace(finding, unpriced=NOT_THERE)
    needless = lines.needless(finding)
    if busy.operators > needless + _ROUNDED:
        return replace(
            finding,
            unpriced=f"{amounts.digits(busy.operators)} operators run on its line in each step, and "
            f"{amounts.digits(needless)} are not needed: which of them is not recorded",
        )
    return replace(
        finding,
        lost_us_per_step_low=busy.low_us,
        lost_us_per_step_high=busy.high_us,
        basis="forecast",
        facts=(*finding.facts, _kept_busy(busy, lines.gpu)),
    )


_ROUNDED = 0.01


def _looped(finding: Finding, lines: _Lines) -> Finding:
    """What the optimizer's operators keep the GPU busy with: foreach moves the same bytes, so that
    what comes back is mostly the host's.
    """
    at = dict(finding.facts).get("steps at", "")
    there = {str(site): site for step in lines.order.steps for _, site in step if site is not None}
    busy = lines.busy([there[at]]) if at in there else None
    if busy is None:
        return finding
    return replace(finding, facts=(*finding.facts, _kept_busy(busy, lines.gpu)))


def _kept_busy(busy: _Busy, gpu: str) -> tuple[str, str]:
    between = f"{amounts.duration(busy.low_us)} to {amounts.duration(busy.high_us)}"
    return ("its operators keep the GPU busy", f"{between} per step (forecast for {gpu})")


def _line(site: Site | None) -> Line:
    return (site.file, site.line) if site is not None else ("", 0)


def copy_us(size: float, copies: float) -> tuple[float, float]:
    """Between what so many copies of so many bytes together take, in us."""
    return (
        size / (MOST_GBS * 1e3) + LEAST_COPY_US * copies,
        size / (LEAST_GBS * 1e3) + MOST_COPY_US * copies,
    )


def _copy(
    finding: Finding, copies: Iterable[tuple[float, float]], forecast: Forecast | None
) -> Finding:
    """At least the copy's own time, where that is enough to be a price."""
    sizes, numbers = zip(*copies, strict=True)
    low, high = copy_us(sum(sizes), sum(numbers))
    said = f"{amounts.duration(low)} to {amounts.duration(high)} per step (forecast)"
    told = replace(finding, facts=(*finding.facts, ("the copy itself takes", said)))
    busy = _busy_us(forecast)
    if busy is None or low < LEAST_SHARE * busy:
        return replace(told, unpriced=_pace(finding, forecast))
    return replace(told, lost_us_per_step_low=low, basis="forecast")


def _busy_us(forecast: Forecast | None) -> float | None:
    """The upper end of the chosen GPU's busy time."""
    return forecast.gpus[0].high_us if forecast is not None and forecast.gpus else None


def _pace(finding: Finding, forecast: Forecast | None) -> str:
    busy = _busy_us(forecast)
    if busy is None or forecast is None or finding.code not in WAITS:
        return PACE
    return (
        f"{PACE}; all waits of a step together cost at most {amounts.duration(busy)} (forecast for "
        f"{forecast.gpus[0].gpu}), their calls' own time aside"
    )
