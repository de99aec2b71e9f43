"""NUM009: autograd's anomaly mode left on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor import amounts
from auditor.batch_means import Estimate
from auditor.evidence.recorded.reads import framework_of
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Rows, Table
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.schema.numerics import ModeRow
from auditor.rule import Rule, knob
from auditor.syntax.index import names_in

from ..lines import between

OFF = "set_detect_anomaly(False)"


@dataclass(frozen=True)
class AnomalyModeLeftOn(Rule):
    """Anomaly mode is left on."""

    code = "NUM009"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.5, "Report if the backward of this share of the steps runs under anomaly mode."
    )

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
