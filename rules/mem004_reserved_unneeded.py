"""MEM004: the allocator holds memory that was not needed even at the peak."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Allocations, DeviceMemory, Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

MIB = 2**20


@dataclass(frozen=True)
class ReservedMemoryNeverNeeded(Rule):
    """
    Reserved device memory was not needed even at the peak.

    ## What it finds
    The share of the CUDA allocator's reserved memory that lay unused even when the step's tensors
    needed most. Where the allocator had to give blocks back (``num_alloc_retries``) or ran out of
    memory, less is enough.

    ## Why it costs
    The unused part cannot be used by other processes, and where it lies in holes between live
    blocks not by this one either: an out-of-memory error then comes although enough bytes are free.

    ## Example
    ```python
    # needs: cuda
    import torch

    kept = []

    def step():
        large = torch.empty(96 * 2**20, dtype=torch.uint8, device="cuda")
        del large
        kept.append(torch.empty(56 * 2**20, dtype=torch.uint8, device="cuda"))
        del kept[:-8]
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    kept = [torch.empty(56 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(8)]

    def step():
        large = torch.empty(96 * 2**20, dtype=torch.uint8, device="cuda")
        del large
        kept[0].zero_()
        kept.append(kept.pop(0))
    ```
    Or set ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`` before torch starts.

    ## When to ignore
    Nothing else needs the memory and the training never comes close to the device's limit.

    ## Sources
    On a simulated allocator healthy training left 1 to 5 % unneeded and fragmented training 14 to
    30 %. Ratios of free to reserved memory do not separate the two: they count the cache, which is
    meant to be there.
    """

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
