"""COMP003: a function that was compiled too often and runs without the compiler since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.batch_means import Estimate
from auditor.evidence.recorded.compiles import Compiles, Recompiled
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule

from ..pricing import between
from .recompiling import EDITS, Hints, because, hints, named, of_a_length, remedy


@dataclass(frozen=True)
class RecompileLimitReached(Rule):
    """A function was compiled too often and runs eagerly since"""

    code = "COMP003"
    severity = Severity.WARNING
    since = "0.1"
    edits = EDITS

    def detect(self, compiles: Compiles, steps: Steps, machine: Machine) -> Iterator[Finding]:
        reached = [each for each in compiles.recompiled if each.limit]
        for each in reached:
            price = _price(reached, steps)
            lost = price.value if price is not None else None
            found = Finding(
                each.site,
                f"{named(each)} was compiled so often that torch.compile gave up on it, and it "
                f"has run eagerly since: {because(each)}"
                + (f"; a step is {amounts.duration(lost)} slower since" if lost else ""),
                lost_us_per_step=lost,
                basis="none" if lost is None else "measured",
                seen_on=machine.device,
                facts=(
                    ("guard that failed", each.guard),
                    ("times that it failed", str(each.n)),
                    ("time of compilations", amounts.duration(each.us)),
                ),
                hints=hints(each, compiles),
            )
            yield between(found, price)

    def remedy(self, finding: Finding) -> Remedy | None:
        return remedy(finding.hints_as(Hints))


def _price(reached: list[Recompiled], steps: Steps) -> Estimate | None:
    """What a step lost by it, where that is proven: of one function, given up in the timing pass.
    Where lengths vary, later steps may have more to do.
    """
    (only, *others) = reached
    if others or only.since is None or of_a_length(only.guard):
        return None
    price = steps.slower_after(only.since)
    return price if price is not None and price.proven else None
