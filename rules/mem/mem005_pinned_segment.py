"""MEM005: which live block keeps which segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.snapshot.history import Allocations
from auditor.evidence.snapshot.segments import Snapshot
from auditor.model import Basis, Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob

from .memory import DeviceMemory

MIB = 2**20


@dataclass(frozen=True)
class BlockPinsSegment(Rule):
    """A small live block keeps a large free segment."""

    code = "MEM005"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    share: float = knob(0.25, "Share of the reserved memory unneeded at the peak (as MEM004).")
    least_mib: float = knob(256.0, "Unneeded MiB (as MEM004).")
    share_if_pressed: float = knob(
        0.1,
        "The share that is enough where the allocator retried or ran out of memory (as MEM004).",
    )
    pinned_mib: float = knob(64.0, "Free MiB that one line must pin to be shown.")
    lines: int = knob(3, "Lines shown at most, those that pin most.")

    def detect(
        self, memory: DeviceMemory, snapshot: Snapshot, machine: Machine
    ) -> Iterator[Finding]:
        machine.nothing_seen_without_cuda("the CUDA allocator was not used")
        fragmented = memory.fragmented(
            share=self.share,
            least_bytes=int(self.least_mib * MIB),
            share_if_pressed=self.share_if_pressed,
        )
        if not fragmented and not snapshot.at_oom:
            return
        yield from self._pins(snapshot, machine.bytes_basis)

    def in_snapshot(self, allocations: Allocations, snapshot: Snapshot) -> Iterator[Finding]:
        least = int(self.least_mib * MIB)
        for course in allocations.devices:
            if course.fragmented(
                share=self.share, least_bytes=least, share_if_pressed=self.share_if_pressed
            ):
                yield from self._pins(snapshot.on(course.device), "measured")

    def _pins(self, snapshot: Snapshot, basis: Basis) -> Iterator[Finding]:
        pins = [
            pin for pin in snapshot.pins()[: self.lines] if pin.free_bytes >= self.pinned_mib * MIB
        ]
        if not pins and snapshot.untold_bytes >= self.pinned_mib * MIB:
            raise NotLooked(
                "the blocks that keep the segments were allocated before the allocation history "
                "was recorded"
            )
        for pin in pins:
            yield Finding(
                pin.site,
                f"{amounts.count(pin.blocks, 'live block')} ({amounts.size(pin.live_bytes)}) "
                f"allocated here keep{'s' * (pin.blocks == 1)} "
                f"{amounts.count(len(pin.segments), 'segment')} "
                f"with {amounts.size(pin.free_bytes)} free",
                lost_bytes=pin.free_bytes,
                basis=basis,
                seen_on="snapshot",
                facts=(
                    ("segments", str(len(pin.segments))),
                    ("reserved in all", amounts.size(snapshot.reserved)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Allocate what stays before what comes and goes (once, before the loop), or copy what "
            "is kept to the host; "
            "expandable_segments:True avoids most such holes.",
            config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        )
