"""COMP008: a hook on a part of a module that was compiled before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob

from .rows import LateHookRow


@dataclass(frozen=True)
class HookNeverRuns(Rule):
    """A hook is registered on a compiled module and never runs"""

    code = "COMP008"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(5, "Steps of each of the two passes that must have had the hook.")
    share: float = knob(0.9, "Share of the steps held eager in which it must have been called.")

    def detect(self, hooks: Rows[LateHookRow], machine: Machine) -> Iterator[Finding]:
        quiet, held = (
            {row.at: row for row in hooks if row.pass_name == name}
            for name in ("quiet", "eager_held")
        )
        if not held:
            raise NotLooked(
                "no hook of a lambda or inner function was registered after a compilation, and "
                "followed with compiled functions held eager"
            )
        for at in sorted(quiet.keys() & held.keys()):
            each, eager = quiet[at], held[at]
            if each.ran or each.again or eager.again:
                continue
            if min(each.steps, eager.steps) < self.least:
                continue
            if not eager.ran or eager.ran < self.share * eager.steps:
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
                        f"{eager.ran} of {amounts.count(eager.steps, 'step')}",
                    ),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Register it before the compiled module is called for the first time, or call "
            "torch.compiler.reset() afterwards; torch._dynamo.config.skip_nnmodule_hook_guards = "
            "False makes compiled code look."
        )
