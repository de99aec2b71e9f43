"""KERN005: attention runs as separate products and a softmax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace.patterns import Structure
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class UnfusedAttention(Rule):
    """Attention runs as two batched products with a softmax between them."""

    code = "KERN005"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.1, "Share of kernel time in such attention from which it is a warning.")

    def detect(self, structure: Structure) -> Iterator[Finding]:
        share = structure.attention_share
        if not structure.attentions or share < self.share:
            return
        yield Finding(
            structure.attention_at.site,
            f"attention{structure.attention_at} runs as bmm, softmax, bmm: "
            f"{amounts.percent(share)} of the kernel time, "
            f"{amounts.digits(structure.attentions / structure.steps)} times "
            f"{'per step' if structure.marked else 'in the trace'}",
            steps=structure.steps if structure.marked else 0,
            per_step=structure.attentions / structure.steps if structure.marked else 0.0,
            seen_on="trace",
            severity=None if structure.marked else Severity.NOTE,
            facts=(
                (
                    "device time",
                    f"{amounts.duration(structure.attention_us / structure.steps)} per step",
                ),
            ),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Use torch.nn.functional.scaled_dot_product_attention (in transformers: "
            "attn_implementation='sdpa') with 16-bit inputs."
        )
