"""MEM004: the allocator holds memory that was not needed even at the peak."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.snapshot.history import Allocations
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .memory import DeviceMemory

MIB = 2**20


@dataclass(frozen=True)
class ReservedMemoryNeverNeeded(Rule):
    """Reserved device memory was not needed even at the peak."""

    code = "MEM004"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    share: float = knob(0.25, "Share of the reserved memory unneeded at the peak.")
    least_mib: float = knob(
        256.0, "Unneeded MiB below which nothing is reported, unless the allocator ran short."
    )
    share_if_pressed: float = knob(
        0.1, "The share that is enough where the allocator retried or ran out of memory."
    )

    def detect(self, memory: DeviceMemory, machine: Machine) -> Iterator[Finding]:
        machine.nothing_seen_without_cuda("the CUDA allocator was not used")
        if not memory.fragmented(
            share=self.share,
            least_bytes=int(self.least_mib * MIB),
            share_if_pressed=self.share_if_pressed,
        ):
            return
        yield Finding(
            None,
            f"{amounts.size(memory.unneeded_bytes)} of {amounts.size(memory.reserved_at_peak)} "
            "reserved "
            f"({amounts.percent(memory.unneeded_share)}) were not needed even at the peak",
            steps=len(memory.steps),
            lost_bytes=memory.unneeded_bytes,
            basis=machine.bytes_basis,
            seen_on=machine.device,
            facts=memory.facts,
        )

    def in_snapshot(self, allocations: Allocations) -> Iterator[Finding]:
        for course in allocations.devices:
            least = int(self.least_mib * MIB)
            if not course.fragmented(
                share=self.share, least_bytes=least, share_if_pressed=self.share_if_pressed
            ):
                continue
            yield Finding(
                None,
                f"{amounts.size(course.unneeded_bytes)} of {amounts.size(course.reserved_at_peak)} "
                "reserved on GPU "
                f"{course.device} ({amounts.percent(course.unneeded_share)}) were not needed even "
                "at the peak",
                lost_bytes=course.unneeded_bytes,
                basis="measured",
                seen_on="snapshot",
                facts=course.facts,
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which lets segments grow "
            "instead of leaving holes; it helps "
            "where sizes vary from step to step, does nothing about memory that is really in use, "
            "and is not available on all "
            "platforms: measure the peak again.",
            config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        )
