"""CKPT004: torch.save takes a noticeable part of the steps' time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.torch_save import Saves, SavingLine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..placing import places_of
from ..pricing import between


@dataclass(frozen=True)
class SaveBlocksStep(Rule):
    """The step waits while a checkpoint is written."""

    code = "CKPT004"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.05, "Share of the timed steps' time in saves of one line from which it is reported."
    )

    def detect(self, saves: Saves, machine: Machine) -> Iterator[Finding]:
        saves.need_saves()
        for line in saves.lines():
            share = line.us / saves.step_us if saves.step_us else 0.0
            if len(line.calls) < 2 or share < self.share:
                continue
            found = Finding(
                line.site,
                f"torch.save takes {amounts.percent(share)} of the step time: "
                f"{amounts.duration(line.us / len(line.calls))} on {line.pattern}",
                steps=len(line.pattern.seen),
                per_step=line.per_step,
                lost_us_per_step=line.us_per_step,
                basis="estimated" if machine.cuda else "measured",
                seen_on=machine.device,
                facts=_facts(line),
                places=places_of(line.site, line.called),
            )
            yield found if machine.cuda else between(found, line.price)

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Save less often; or copy the state to host memory in the step and write it from a "
            "thread "
            "(torch.distributed.checkpoint.async_save does both), to a temporary name that "
            "os.replace makes the checkpoint."
        )


def _facts(line: SavingLine) -> tuple[tuple[str, str], ...]:
    sizes = [save.size for save in line.calls if save.size is not None]
    size = (("largest file", amounts.size(max(sizes))),) if sizes else ()
    longest = max(save.us for save in line.calls)
    return (("saves", f"{len(line.calls)}"), ("longest", amounts.duration(longest)), *size)
