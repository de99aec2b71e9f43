"""MEM008: sizes that vary from step to step make the allocator obtain memory again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import LateGrowth, Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

MIB = 2**20


@dataclass(frozen=True)
class VaryingSizesReallocate(Rule):
    """
    Sizes that vary from step to step are allocated anew.

    ## What it finds
    Lines that, in the second half of the allocation history, ask for sizes they never asked for
    before and get them from the device although enough bytes lay free in older blocks. Reported
    only where the reserved memory rose by much more than the tensors needed.

    ## Why it costs
    A cached block serves requests up to its own size: each longer batch gets new memory while the
    blocks of shorter ones stay. Each ``cudaMalloc`` also holds up the host.

    ## Example
    ```python
    # needs: rehearsal
    import torch

    lengths = iter(range(10, 100))

    def step():
        batch = torch.empty(next(lengths) * 2**23, dtype=torch.uint8, device="cuda")
        del batch
    ```

    ## Use instead
    ```python
    # needs: rehearsal
    import torch

    lengths = iter(range(10, 100))
    buffer = torch.empty(100 * 2**23, dtype=torch.uint8, device="cuda")

    def step():
        batch = buffer[: next(lengths) * 2**23]
        del batch
    ```
    Or pad to a few lengths, run the longest batch first, or let segments grow with
    ``expandable_segments:True``.

    ## When to ignore
    The longest batch comes early in a real epoch, and the memory suffices.

    ## Sources
    PyTorch's performance guide ("Preallocate memory in case of variable input length"). The
    thresholds are ours.
    """

    code = "MEM008"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    share: float = knob(
        0.1, "Share of the reserved memory that came in the second half without need."
    )
    least_mib: float = knob(256.0, "The same in MiB.")
    times: int = knob(3, "New sizes that a line must have got from the device to be shown.")
    known: int = knob(
        3,
        "Sizes that it must have asked for before: one whose first half had one size has no "
        "varying input.",
    )

    def detect(self, growth: LateGrowth, machine: Machine) -> Iterator[Finding]:
        wasted = growth.wasted_bytes
        if wasted < self.least_mib * MIB or wasted < self.share * growth.peak_reserved:
            return
        for line in growth.lines:
            if len(set(line.new)) < self.times or len(line.known) < self.known:
                continue
            yield Finding(
                line.site,
                f"{len(line.new)} sizes from {amounts.size(line.new[0])} to "
                f"{amounts.size(line.new[-1])} were allocated anew here while "
                f"shorter blocks lay free: the allocator holds {amounts.size(wasted)} more than "
                "the tensors needed more",
                lost_bytes=wasted,
                basis=machine.bytes_basis,
                seen_on="snapshot",
                facts=(
                    ("reserved rose by", amounts.size(growth.reserved)),
                    ("allocated rose by", amounts.size(growth.allocated)),
                    ("sizes before", f"{len(line.known)}, up to {amounts.size(line.known[-1])}"),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Pad batches to a few lengths, run the longest once before the loop, or write into a "
            "buffer that is allocated once; "
            "expandable_segments:True lets blocks grow instead.",
            config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        )
