"""DIST013: an optimizer steps on gradients of one rank alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.data_parallel import DataParallel
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..placing import places_of
from .rows import CollectiveRow


@dataclass(frozen=True)
class SteppedUnaveraged(Rule):
    """The optimizer steps on gradients that were not averaged over the ranks"""

    code = "DIST013"
    severity = Severity.ERROR
    since = "0.1"

    least: int = knob(1, "Steps on partly averaged gradients from which it is reported.")
    alone: int = knob(5, "Steps from which it is reported where no backward averaged any.")
    ranks: int = knob(2, "Ranks below which nothing is averaged.")
    sent: float = knob(
        0.25, "Share of the gradients' bytes that the program sends itself, from which nothing is reported."
    )

    def detect(
        self, modules: DataParallel, collectives: Rows[CollectiveRow], machine: Machine
    ) -> Iterator[Finding]:
        sent: Counter[int] = Counter()
        for row in collectives:
            sent[row.step] += row.bytes
        most = max(sent.values(), default=0)
        for module in modules.each:
            least = self.least if module.averaged else self.alone
            if module.ranks < self.ranks or len(module.apart) < least:
                continue
            if most >= self.sent * module.nbytes:
                continue
            places = Counter((each.entered_at, each.backward_at) for each in module.apart)
            entered_at, backward_at = places.most_common(1)[0][0]
            last = module.apart[-1]
            before = (
                "none before it averages them either"
                if not last.averaged
                else f"only {amounts.count(last.averaged, 'earlier pass', 'earlier passes')} "
                "averaged them"
            )
            yield Finding(
                entered_at or backward_at,
                f"the last backward before `{module.what}` is stepped runs inside no_sync(), and "
                f"{before}: the {module.ranks} ranks step on different gradients",
                steps=len(module.apart),
                per_step=1.0,
                seen_on=machine.device,
                facts=(
                    (
                        "steps on gradients that are not averaged",
                        f"{len(module.apart)} of {module.stepped}",
                    ),
                    ("backward passes for the last of them", _passes(last.averaged, last.local)),
                ),
                places=places_of(entered_at, backward_at),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Let the last micro-batch before optimizer.step() run outside of no_sync(), forward "
            "and backward, also where an epoch ends with fewer micro-batches; all others inside."
        )


def _passes(averaged: int, local: int) -> str:
    return f"{averaged} averaged, then {local} inside no_sync()"
