"""SYNC007: non_blocking=True on a tensor in pageable memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from auditor.evidence.recorded.copies import Copies
from auditor.evidence.trace.host_waits import TraceWaits, WaitPlace
from auditor.model import Finding, Remedy, Severity
from auditor.rule import knob

from ..copying import CopyRule
from .waiting import waits_in_trace


@dataclass(frozen=True)
class AsyncCopyFromPageableMemory(CopyRule):
    """``non_blocking=True`` copies from memory that is not pinned."""

    code = "SYNC007"
    severity = Severity.WARNING
    since = "0.1"
    leads = 3

    small: int = knob(
        64_000,
        "Bytes a copy up to which it is a note: the driver stages so little without waiting.",
    )

    def detect(self, copies: Copies) -> Iterator[Finding]:
        for place in self.usual(
            copies.sites("tensor", "made on the host", blocking=False, pinned=False)
        ):
            message = (
                f"non_blocking=True copies {place.amount} from pageable memory on {place.pattern}: "
                "it is staged by the host first, and nothing overlaps"
            )
            small = place.bytes_per_step <= self.small * place.per_step
            yield self.report(
                copies, place, place.site, message, severity=Severity.NOTE if small else None
            )

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        places = waits.of("copy to device", "copy to host", "copy", asynchronous=True)
        large = [place for place in places if not 0 <= place.copied <= self.small * place.n]
        yield from waits_in_trace(waits, large, self._sentence)
        for finding in waits_in_trace(
            waits, (place for place in places if place not in large), self._sentence
        ):
            yield replace(finding, severity=Severity.NOTE)

    def _sentence(self, place: WaitPlace) -> str:
        what = f"`{place.operator}`" if place.operator else f"{place.api}"
        size = f" ({place.amount})" if place.amount else ""
        side = "to" if place.cause == "copy to host" else "from"
        return (
            f"{what} makes an asynchronous copy {side} pageable memory{size}, which blocks all the "
            "same"
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Copy from pinned memory: DataLoader(pin_memory=True), or one pinned buffer that is "
            "filled each step."
        )
