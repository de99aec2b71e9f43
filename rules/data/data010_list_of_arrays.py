"""DATA010: a tensor is made of a list of NumPy arrays, number by number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.recordings.schema import ListedRow
from auditor.rule import Rule, knob

from .time_inside import time_inside


@dataclass(frozen=True)
class TensorOfListOfArrays(Rule):
    """A tensor is made of a list of NumPy arrays."""

    code = "DATA010"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.05, "Share of the step, or of a batch's making, from which it is reported."
    )
    least_us: float = knob(100.0, "Time in a step, or for a batch, from which it is reported (us).")

    def detect(self, lists: Rows[ListedRow], steps: Steps, machine: Machine) -> Iterator[Finding]:
        watched = len(steps.loud)
        for each in lists:
            us, share = time_inside(each, each.n, steps)
            if not (each.n and watched) or share < self.share or us < self.least_us:
                continue
            in_worker = each.where == "worker"
            taken, part = amounts.duration(us), amounts.percent(share)
            costs = (
                f"{taken}, {part} of a worker's time for a batch"
                if in_worker
                else f"{taken} per step, {part} of it"
            )
            yield Finding(
                each.site,
                f"a list of {each.arrays / each.n:.3g} NumPy arrays becomes a tensor number by "
                f"number ({each.numbers / each.n:,.0f} of them): {costs}",
                steps=watched,
                per_step=each.n / watched,
                lost_us_per_step=None if in_worker else us,
                basis="none" if in_worker else "estimated",
                seen_on=machine.device,
                severity=Severity.NOTE if in_worker else None,
                facts=(("time inside", taken),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Put the arrays together first: torch.from_numpy(np.stack(arrays)), with .to(dtype) "
            "where another dtype is wanted."
        )
