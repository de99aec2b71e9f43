"""KERN008: a module is called several times in a row, with a small batch each time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..placing import places_of
from .forwards_in_row import ForwardsInRow


@dataclass(frozen=True)
class ForwardsOfSmallBatches(Rule):
    """A module is called several times in a row with small batches."""

    code = "KERN008"
    severity = Severity.NOTE
    since = "0.1"

    share: float = knob(
        0.05,
        "Share of the precision pass's time outside backward, inside the calls, from which it is "
        "reported.",
    )
    elements: int = knob(
        8192, "Numbers in a batch above which the device may be busy with it for as long."
    )

    def detect(self, forwards: ForwardsInRow, machine: Machine) -> Iterator[Finding]:
        for each in forwards.worth(self.share, self.elements):
            yield Finding(
                each.sites[0],
                f"{each.module} is called {len(each.sites)} times in a row, each time with a small "
                f"batch of its own: {amounts.percent(each.share)} of the watched forward is inside",
                steps=each.steps,
                per_step=float(len(each.sites)),
                seen_on=machine.device,
                places=places_of(*each.sites),
                facts=(("numbers in a batch", f"{each.elements:,}"),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Join the batches, call the module once and cut the result: "
            "a, b, c = module(torch.cat([x, y, z])).chunk(3)."
        )
