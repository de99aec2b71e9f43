"""TIME004: the step waits until what it wrote is on storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..placing import places_of
from ..pricing import between
from .storage_syncs import StorageSyncs


@dataclass(frozen=True)
class StorageWaitedFor(Rule):
    """The step waits until a file is on storage."""

    code = "TIME004"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.05, "Share of the timed steps' time in such calls of one line from which it is reported."
    )
    often: float = knob(0.25, "Share of the timed steps that must have such a call.")

    def detect(self, syncs: StorageSyncs, machine: Machine) -> Iterator[Finding]:
        for line in syncs.lines():
            steps = len(line.pattern.seen)
            share = line.us / (syncs.step_us or 1.0)
            if share < self.share or steps < max(2.0, self.often * syncs.steps):
                continue
            each = line.us / line.number
            found = Finding(
                line.site,
                f"{line.name} takes {amounts.percent(share)} of the step time: "
                f"{amounts.duration(each)} a call, on {line.pattern}",
                steps=steps,
                per_step=line.per_step,
                lost_us_per_step=line.us_per_step,
                basis="estimated" if machine.cuda else "measured",
                seen_on=machine.device,
                facts=(("calls", str(line.number)),),
                places=places_of(line.site, line.called),
            )
            yield found if machine.cuda else between(found, line.price)

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Write at the log interval only, and leave it to the operating system when the file "
            "is written out: flush() without fsync survives the program's death. Or write from a "
            "thread."
        )
