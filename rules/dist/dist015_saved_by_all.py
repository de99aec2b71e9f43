"""DIST015: every rank saves the same state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from .rank_saves import RankSaves
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class SavedByAll(Rule):
    """Every rank saves the same state"""

    code = "DIST015"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(1 << 18, "Bytes of the file from which it is reported.")

    def detect(self, saves: RankSaves, machine: Machine) -> Iterator[Finding]:
        for each in saves.each:
            if each.nbytes < self.least:
                continue
            where = "into one file" if each.one_file else "into a file of its own"
            yield Finding(
                each.site,
                f"each of {each.ranks} ranks saves the same tensors, "
                f"{amounts.size(each.nbytes)}, {where}",
                steps=each.saves,
                seen_on=machine.device,
                facts=(
                    ("saves that were alike", str(each.saves)),
                    ("written for nothing", f"{_extra(each.nbytes, each.ranks)} each time"),
                    ("a save of another rank took", amounts.duration(each.us)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Save on rank 0 alone (`if dist.get_rank() == 0:`; what gathers the state stays on all "
            "ranks). Of a sharded model, let torch.distributed.checkpoint save each rank's part, "
            "or gather with StateDictOptions(full_state_dict=True, cpu_offload=True)."
        )


def _extra(nbytes: int, ranks: int) -> str:
    return amounts.size(nbytes * (ranks - 1))
