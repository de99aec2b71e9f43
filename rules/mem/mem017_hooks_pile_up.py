"""MEM017: a hook that is registered on each step and never removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .rows import KeptHookRow


@dataclass(frozen=True)
class HooksPileUp(Rule):
    """A hook is registered on every step and never removed"""

    code = "MEM017"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    share: float = knob(0.9, "Share of the steps that must leave a hook behind.")
    fewest: int = knob(5, "Steps below which nothing is reported.")

    def detect(self, hooks: Rows[KeptHookRow], machine: Machine) -> Iterator[Finding]:
        for line in hooks:
            if line.added < max(self.fewest, self.share * line.steps):
                continue
            yield Finding(
                line.site,
                f"`{line.way}` adds a hook to the same {line.owner} on {line.added} of "
                f"{line.steps} steps and none is removed: {amounts.count(line.n, 'hook')} of this "
                "line by then, and all of them run each time",
                steps=line.added,
                per_step=line.n / line.steps,
                seen_on=machine.device,
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Register it once, before the loop; or keep the handle and remove it in the same step: "
            "`with module.register_forward_hook(hook):` does."
        )
