"""DATA010: a tensor is made of a list of NumPy arrays, number by number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .array_lists import ArrayList, ArrayLists


@dataclass(frozen=True)
class TensorOfListOfArrays(Rule):
    """A tensor is made of a list of NumPy arrays."""

    code = "DATA010"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.05, "Share of the step, or of a batch's making, from which it is told.")
    least_us: float = knob(100.0, "Time in a step, or for a batch, from which it is told (us).")

    def detect(self, lists: ArrayLists, machine: Machine) -> Iterator[Finding]:
        for each in lists.worth(self.share, self.least_us):
            yield Finding(
                each.site,
                f"a list of {each.arrays:.3g} NumPy arrays becomes a tensor number by number "
                f"({each.numbers:,.0f} of them): {_costs(each)}",
                steps=each.steps,
                per_step=each.calls / each.steps,
                lost_us_per_step=None if each.in_worker else each.us,
                basis="none" if each.in_worker else "estimated",
                seen_on=machine.device,
                severity=Severity.NOTE if each.in_worker else None,
                facts=(("time inside", amounts.duration(each.us)),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Put the arrays together first: torch.from_numpy(np.stack(arrays)), with .to(dtype) "
            "where another dtype is wanted."
        )


def _costs(each: ArrayList) -> str:
    share, time = amounts.percent(each.share), amounts.duration(each.us)
    if each.in_worker:
        return f"{time}, {share} of a worker's time for a batch"
    return f"{time} per step, {share} of it"
