"""GRAPH008: the graphs of all micro-batches live until one backward walks their sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .summed_losses import LossSums


@dataclass(frozen=True)
class OneBackwardForAll(Rule):
    """One backward walks a sum of losses that have nothing in common."""

    code = "GRAPH008"
    severity = Severity.NOTE
    since = "0.1"

    steps: int = knob(2, "Watched steps (of three) on which it must be seen.")
    least_bytes: int = knob(
        1 << 16, "Bytes that the graph of one loss must hold before anything is reported."
    )
    times: float = knob(
        1.0, "How many times the bytes of the parameters must be given back by it at least."
    )

    def detect(self, sums: LossSums, machine: Machine) -> Iterator[Finding]:
        for each in sums.heavy(self.steps, self.least_bytes, self.times):
            yield Finding(
                each.site,
                f"this backward walks the sum of {each.parts} losses whose graphs share nothing but "
                f"the parameters: together they hold {amounts.size(each.saved_bytes)}, one alone "
                f"{amounts.size(each.each_bytes)}",
                steps=each.steps,
                per_step=1.0,
                lost_bytes=each.lost_bytes,
                basis="measured",
                seen_on=machine.device,
                facts=(("losses", str(each.parts)),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Call backward on each loss in its turn: the gradients add up, and its graph is freed "
            "before the next forward. Under DistributedDataParallel use no_sync() until the last."
        )
