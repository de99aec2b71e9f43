"""CKPT009: a state that is kept for later follows the training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .kept_states import KeptStates


@dataclass(frozen=True)
class KeptStateIsLive(Rule):
    """A kept ``state_dict()`` is not a copy: it follows the training."""

    code = "CKPT009"
    severity = Severity.WARNING
    since = "0.1"

    fewest: int = knob(
        2, "Optimizer steps over which the state must have been kept before anything is reported."
    )

    def detect(self, states: KeptStates, machine: Machine) -> Iterator[Finding]:
        for each in states.brought_back(self.fewest):
            done = (
                f"it was loaded at {each.back}, {each.loads} times"
                if each.loads
                else f"{each.back} brings it back"
            )
            yield Finding(
                each.site,
                f"the state of {each.module} that is kept here is no copy: {each.steps} optimizer "
                f"steps changed the tensors in it, and {done}",
                steps=each.steps,
                per_step=1.0,
                seen_on=machine.device,
                facts=(("brought back at", str(each.back)),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Keep copy.deepcopy(model.state_dict()), or {name: value.clone() for name, value in "
            "model.state_dict().items()}."
        )
