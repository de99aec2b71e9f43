"""MEM006: who holds the memory at its peak."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Machine, PeakHolders
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

MIB = 2**20


@dataclass(frozen=True)
class PeakHeldByFewLines(Rule):
    """
    A few lines hold most of the memory at its peak.

    ## What it finds
    The lines whose tensors were live when most memory was allocated, from the allocation history of
    a memory snapshot: bytes, number of blocks, whether they are freed again, and the stack of the
    largest. Without a history, those that were live when the snapshot was taken. Where an audit
    recorded the history it also says what the memory was for: parameters, gradients, optimizer
    state, made in the step, kept from earlier ones; and, where the batches come from one
    DataLoader, an estimate of the peak with half the batch. It is information, not a defect: where
    to look first if the step shall use less.

    ## Why it costs
    The peak decides which batch fits on which card. What is not live at the peak can be optimised
    without any effect on it.

    ## Example
    ```python
    # needs: cuda
    import torch

    def step():
        scores = torch.empty(1024, 2**20, dtype=torch.uint8, device="cuda")
        del scores
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    def step():
        for _ in range(8):
            part = torch.empty(128, 2**20, dtype=torch.uint8, device="cuda")
            del part
    ```

    ## When to ignore
    The step fits on the card with room to spare.

    ## Sources
    Stacks and sizes are torch's own (``torch.cuda.memory._snapshot``). A block that was freed again
    counts with the size that its request is rounded to. Blocks without a Python frame come from
    threads of autograd's, most of them gradients.
    """

    code = "MEM006"
    severity = Severity.NOTE
    since = "0.1"
    rehearsed = True
    native = True

    least_mib: float = knob(512.0, "MiB allocated at the peak below which nothing is reported.")
    share: float = knob(
        0.1, "Share of the peak that a line must hold for the finding to point at it."
    )
    lines: int = knob(10, "Lines shown.")

    def detect(self, peak: PeakHolders, machine: Machine) -> Iterator[Finding]:
        for each in peak.devices:
            first = next((holder for holder in each.holders if holder.site is not None), None)
            if (
                each.allocated < self.least_mib * MIB
                or first is None
                or first.size < self.share * each.allocated
            ):
                continue
            when = "at the peak" if each.timed else "when the snapshot was taken"
            yield Finding(
                first.site,
                f"{when} {amounts.size(each.allocated)} are allocated on GPU {each.device}; "
                "tensors made here hold "
                f"{amounts.size(first.size)} of it "
                f"({amounts.percent(first.size / each.allocated)})",
                basis=machine.bytes_basis,
                seen_on="snapshot",
                facts=(
                    *each.purposes,
                    *(holder.row for holder in each.holders[: self.lines]),
                    ("stack of the largest block", " < ".join(first.stack)),
                    *each.cards,
                    *each.halved,
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "If less is needed: activation checkpointing around the largest activations, a smaller "
            "batch with gradient "
            "accumulation, or a fused form that never makes the tensor "
            "(scaled_dot_product_attention, cross_entropy)."
        )
