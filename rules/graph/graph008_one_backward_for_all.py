"""GRAPH008: the graphs of all micro-batches live until one backward walks their sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.grouping import together
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .rows import SummedRow


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

    def detect(self, sums: Rows[SummedRow], machine: Machine) -> Iterator[Finding]:
        for seen in together(sums, lambda row: row.at):
            each, steps = min(seen, key=lambda row: row.lost_bytes), len({row.step for row in seen})
            if steps < self.steps or each.each_bytes < self.least_bytes:
                continue
            if each.lost_bytes < self.times * each.leaf_bytes:
                continue
            yield Finding(
                each.site,
                f"this backward walks the sum of {each.n} losses whose graphs share nothing but "
                f"the parameters: together they hold {amounts.size(each.saved_bytes)}, one alone "
                f"{amounts.size(each.each_bytes)}",
                steps=steps,
                per_step=1.0,
                lost_bytes=each.lost_bytes,
                basis="measured",
                seen_on=machine.device,
                facts=(("losses", str(each.n)),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Call backward on each loss in its turn: the gradients add up, and its graph is freed "
            "before the next forward. Under DistributedDataParallel use no_sync() until the last."
        )
