"""DATA004: batches in pinned memory are copied to the device, and the host waits all the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.copies import Copies
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.model import Finding, Remedy, Severity

from ..copying import NOT_WAITING, CopyRule, Moves


@dataclass(frozen=True)
class PinnedBatchCopiedBlocking(CopyRule):
    """Pinned batches are copied to the device and the host waits."""

    code = "DATA004"
    severity = Severity.NOTE
    since = "0.1"
    edits = (NOT_WAITING,)
    leads = 1

    def detect(self, copies: Copies, source: Source, configs: Configs) -> Iterator[Finding]:
        for place in self.usual(copies.sites("batch", blocking=True, pinned=True)):
            moves = self.waiting_moves(place, source, configs)
            decided = self.waits_because(moves)
            how = f"with {decided}" if decided else "without non_blocking=True"
            message = f"{place.amount} of pinned batches are copied to the device on {place.pattern} {how}"
            yield self.report(copies, place, place.site, message, hints=Moves(moves))

    def remedy(self, finding: Finding) -> Remedy | None:
        text = "Move the batch with non_blocking=True: the copy then runs while the host goes on."
        edits = tuple(self.without_waiting(finding))
        advice, refused = self.decided_elsewhere(finding)
        return Remedy(text + advice, edits, refused=None if edits else refused)
