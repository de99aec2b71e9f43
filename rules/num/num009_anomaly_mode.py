"""NUM009: autograd's anomaly mode left on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.batch_means import Estimate
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import ANY, Permit
from auditor.rule import Rule, knob

from ..pricing import between
from .debug_modes import DebugModes

_SWITCHES = ("torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly")
OFF = "set_detect_anomaly(False)"


@dataclass(frozen=True)
class Hints:
    """The call that switches it on, and what it is given."""

    call: str
    asked: CallArgument | None


@dataclass(frozen=True)
class AnomalyModeLeftOn(Rule):
    """Anomaly mode is left on."""

    code = "NUM009"
    severity = Severity.WARNING
    since = "0.1"
    edits = (
        Permit("rename_call", _SWITCHES, value=re.escape(OFF), safe=True),
        Permit("set_keyword", _SWITCHES, "mode", "False", safe=True, elsewhere=True),
        Permit("set_keyword", (ANY,), "detect_anomaly", "False", safe=True, elsewhere=True),
    )

    share: float = knob(
        0.5, "Share of the steps whose backward runs under anomaly mode from which it is reported."
    )

    def detect(
        self, modes: DebugModes, steps: Steps, machine: Machine, source: Source, configs: Configs
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
            seen_on=machine.device,
            facts=_facts(modes),
            hints=Hints(
                call=source.called(site, "set_detect_anomaly", "detect_anomaly")
                if site is not None
                else "",
                asked=asked,
            ),
        )
        yield found if saved is None else between(found, price)

    def remedy(self, finding: Finding) -> Remedy | None:
        text = "Leave anomaly mode off; turn it on for the one step that is to be explained."
        hints = finding.hints_as(Hints)
        call, asked = hints.call, hints.asked
        reason = "it only checks and reports: gradients are the same without it"
        if asked is not None:
            return Remedy(
                text + asked.advice,
                asked.edits("False", safe=True, reason=reason),
                refused=asked.refused,
            )
        if finding.site is None or not call:
            return Remedy(text)
        return Remedy(
            text, (Edit(finding.site, "rename_call", call, value=OFF, safe=True, reason=reason),)
        )


def _gain(price: Estimate | None, steps: Steps) -> str:
    """What holding it off gave, in words; that nothing is proven where the interval reaches
    zero.
    """
    if price is None:
        return ""
    if price.proven:
        return (
            f"; without it a step is {amounts.duration(price.value)} faster "
            f"({amounts.percent(steps.share_of_step(price.value))})"
        )
    between_them = f"{amounts.duration(price.low)} and {amounts.duration(price.high)}"
    return (
        "; that a step is faster without it is not proven (the difference is between "
        f"{between_them})"
    )


def _asked(modes: DebugModes, source: Source, configs: Configs) -> CallArgument | None:
    """The argument that switched it on: of a framework, or an expression that the call takes; None
    for a plain call.
    """
    if modes.anomaly_library:
        asked = source.only_asked("detect_anomaly")
        return None if asked is None else given(source, configs, *asked, "detect_anomaly", ran=True)
    called = given(source, configs, modes.anomaly_site, "set_detect_anomaly", "mode", ran=True)
    return called if called.written else None


def _facts(modes: DebugModes) -> tuple[tuple[str, str], ...]:
    facts = [("backward calls under it", f"{amounts.digits(modes.anomaly_backwards)} per step")]
    if modes.anomaly_library:
        facts.append(("switched on inside", modes.anomaly_library))
    if modes.checks:
        facts.append(
            (
                "host syncs that its checks make on a GPU",
                f"{amounts.digits(modes.checks)} per step (rehearsed)",
            )
        )
    return tuple(facts)
