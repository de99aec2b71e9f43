"""CKPT009: a state that is kept for later follows the training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

from .kept_names import brought_back
from .rows import KeptStateRow


@dataclass(frozen=True)
class KeptStateIsLive(Rule):
    """A kept ``state_dict()`` is not a copy: it follows the training."""

    code = "CKPT009"
    severity = Severity.WARNING
    since = "0.1"

    fewest: int = knob(
        2, "Optimizer steps over which the state must have been kept before anything is reported."
    )

    def detect(
        self, states: Rows[KeptStateRow], machine: Machine, source: Source
    ) -> Iterator[Finding]:
        for each in states:
            back = _back(each, source) if each.steps >= self.fewest else None
            if back is None:
                continue
            done = (
                f"it was loaded at {back}, {each.loaded} times"
                if each.loaded
                else f"{back} brings it back"
            )
            yield Finding(
                each.site,
                f"the state of {each.module} that is kept here is no copy: {each.steps} optimizer "
                f"steps changed the tensors in it, and {done}",
                steps=each.steps,
                per_step=1.0,
                seen_on=machine.device,
                facts=(("brought back at", str(back)),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Keep copy.deepcopy(model.state_dict()), or {name: value.clone() for name, value in "
            "model.state_dict().items()}."
        )


def _back(state: KeptStateRow, source: Source) -> Site | None:
    """Where it is brought back: in the run, or else by the source."""
    if state.loaded and state.loaded_at is not None:
        return state.site_of(state.loaded_at)
    return None if state.loaded_at_once else brought_back(source, state.site)
