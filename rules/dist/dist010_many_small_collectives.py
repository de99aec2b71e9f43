"""DIST010: many small tensors are reduced one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from .collectives import Collectives
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class ManySmallCollectives(Rule):
    """Many small tensors are sent one by one on each step"""

    code = "DIST010"
    severity = Severity.WARNING
    since = "0.1"

    calls: int = knob(16, "Calls of one line per step from which it is reported.")
    small: int = knob(1 << 20, "Bytes of a mean call below which it is small.")
    share: float = knob(0.5, "Share of the steps from which it is reported.")
    ranks: int = knob(2, "Ranks below which nothing is sent.")

    def detect(self, collectives: Collectives, machine: Machine) -> Iterator[Finding]:
        for each in collectives.each:
            if each.what == "barrier" or each.ranks < self.ranks:
                continue
            if each.per_step < self.calls or each.nbytes >= self.small:
                continue
            if not each.pattern.usual(self.share):
                continue
            number = round(each.per_step)
            yield Finding(
                each.site,
                f"{number} calls of {each.what} on each of {each.pattern}, of "
                f"{amounts.size(round(each.nbytes))} on average: one would do",
                steps=len(each.pattern.seen),
                per_step=each.per_step,
                seen_on=machine.device,
                facts=(
                    ("bytes per step", amounts.size(round(number * each.nbytes))),
                    *(() if each.us is None else (_inside(each.us),)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "For gradients use DistributedDataParallel, which sends buckets while the backward "
            "runs. Elsewhere send one tensor: torch.cat or torch.stack them, or "
            "torch.nn.utils.parameters_to_vector and vector_to_parameters."
        )


def _inside(us: float) -> tuple[str, str]:
    return "host time inside, instrumented", f"{amounts.duration(us)} per step"
