"""MEM006: who holds the memory at its peak."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .peak import PeakHolders

MIB = 2**20


@dataclass(frozen=True)
class PeakHeldByFewLines(Rule):
    """A few lines hold most of the memory at its peak."""

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
