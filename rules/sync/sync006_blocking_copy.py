"""SYNC006: a tensor is copied to the device and {copies.host_waits} until it is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.copies import Copies
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.trace.host_waits import TraceWaits, WaitPlace
from auditor.model import Finding, Remedy, Severity

from ..copying import CopyRule, Moves
from .waiting import waits_in_trace


@dataclass(frozen=True)
class Hints(Moves):
    """Whether what is copied indexes a tensor of the device."""

    indexes: bool = False


@dataclass(frozen=True)
class BlockingCopyEveryStep(CopyRule):
    """A host tensor is copied to the device and the host waits for it."""

    code = "SYNC006"
    severity = Severity.WARNING
    since = "0.1"
    leads = 2

    def detect(self, copies: Copies, source: Source, configs: Configs) -> Iterator[Finding]:
        for place in self.usual(copies.sites("tensor", blocking=True)):
            what = (
                f"an index of the host's ({place.amount}) is"
                if place.indexes
                else f"{place.amount} are"
            )
            there = "it is there" if place.indexes else "they are there"
            moves = self.waiting_moves(place, source, configs)
            how = (
                ""
                if place.indexes
                else f" ({place.memory} memory, "
                f"{self.waits_because(moves) or 'no non_blocking=True'})"
            )
            message = (
                f"{what} copied to the device on {place.pattern} and the host waits until "
                f"{there}{how}"
            )
            yield self.report(copies, place, place.site, message, hints=Hints(moves, place.indexes))

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(waits, waits.of("copy to device"), self._sentence)

    def _sentence(self, place: WaitPlace) -> str:
        what = f"`{place.operator}`" if place.operator else f"{place.api}"
        size = f" ({place.amount})" if place.amount else ""
        return f"{what} makes a blocking copy to the device{size}"

    def remedy(self, finding: Finding) -> Remedy | None:
        if finding.hints_as(Hints).indexes:
            return Remedy(
                "Make the index a tensor on the device before its first use "
                "(torch.as_tensor(index, device=...)): an array or a "
                "tensor of the host is copied anew at each line that indexes with it."
            )
        advice, refused = self.decided_elsewhere(finding)
        return Remedy(
            "Keep the tensor on the device, or copy it from pinned memory with non_blocking=True "
            "(the source must then not "
            f"change before the copy is done).{advice}",
            refused=refused,
        )
