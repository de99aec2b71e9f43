"""COMP008: a hook on a part of a module that was compiled before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .late_hooks import LateHooks


@dataclass(frozen=True)
class HookNeverRuns(Rule):
    """A hook is registered on a compiled module and never runs"""

    code = "COMP008"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(5, "Steps of each of the two passes that must have had the hook.")
    share: float = knob(0.9, "Share of the steps held eager in which it must have been called.")

    def detect(self, hooks: LateHooks, machine: Machine) -> Iterator[Finding]:
        for each in hooks.each:
            if each.ran or each.again or min(each.steps, each.eager_steps) < self.least:
                continue
            if not each.eager_ran or each.eager_ran < self.share * each.eager_steps:
                continue
            yield Finding(
                each.site,
                f"this hook of a `{each.what}` never runs: the module had been compiled before, and "
                "compiled code does not look for new hooks",
                steps=each.steps,
                seen_on=machine.device,
                facts=(
                    ("called in compiled steps", f"0 of {amounts.count(each.steps, 'step')}"),
                    (
                        "called with compiled functions held eager",
                        f"{each.eager_ran} of {amounts.count(each.eager_steps, 'step')}",
                    ),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Register it before the compiled module is called for the first time, or call "
            "torch.compiler.reset() afterwards; torch._dynamo.config.skip_nnmodule_hook_guards = "
            "False makes compiled code look."
        )
