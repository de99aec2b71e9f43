"""What the rules about work that is thrown away have in common: a share of the step's work, and a
price that is estimated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.thrown_work import Thrown, ThrownWork
from auditor.model import Finding, Site
from auditor.rule import Rule


@dataclass(frozen=True)
class WasteRule(Rule):
    """Base of these rules; no rule itself."""

    @staticmethod
    def report(
        thrown: ThrownWork, each: Thrown, machine: Machine, message: str, **more: Any
    ) -> Finding:
        """A finding about one line, with its share of the step's time as the price where the step
        was timed.
        """
        us = None if thrown.us is None or machine.device != "cpu" else thrown.us * each.share
        facts = (
            ("operators per step", amounts.digits(each.operators)),
            ("share of the step's work", amounts.percent(each.share)),
            *more.pop("facts", ()),
        )
        return Finding(
            each.site,
            message,
            steps=each.steps,
            per_step=1.0,
            lost_us_per_step=us,
            basis="none" if us is None else "estimated",
            seen_on=machine.device,
            facts=facts,
            **more,
        )


def worth(each: Thrown) -> str:
    """``12 operators, 3% of the step's work``."""
    number = round(each.operators)
    return (
        f"{amounts.count(number, 'operator')} per step, {amounts.percent(each.share)} of its work"
    )


def also(sites: tuple[Site, ...]) -> tuple[tuple[str, str], ...]:
    """Further lines, as a fact."""
    return (("also", ", ".join(str(site) for site in sites)),) if sites else ()
