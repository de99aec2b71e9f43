"""MEM008: sizes that vary from step to step make the allocator obtain memory again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..lines import places_of
from .varying_sizes import VaryingSizes


@dataclass(frozen=True)
class VaryingSizesReallocate(Rule):
    """Tensor sizes that change from step to step make the allocator reserve more memory."""

    code = "MEM008"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    sizes: int = knob(
        3, "Report only if the second half of the steps has at least this many sizes."
    )
    spread: float = knob(1.1, "Report only if the largest size is this many times the smallest.")
    share: float = knob(0.1, "Report only if one fixed size would save this share of the reserve.")

    def detect(self, varying: VaryingSizes) -> Iterator[Finding]:
        found = varying.varying
        if found is None or not found.many(self.sizes, self.spread):
            return
        if found.extra < self.share * found.reserved or not found.extra:
            return
        size, scaled = amounts.size, found.scale != 1.0
        line = f"{found.site.file}:{found.site.line}"
        moved = f" ({line} moves them to the device)" if found.made_at else ""
        who = f"scaled up {found.scale:.0f} times, the steps" if scaled else "the allocator"
        yield Finding(
            found.made_at or found.site,
            f"tensor sizes change from step to step from this line on ({found.distinct} sizes from "
            f"{size(min(found.sizes))} to {size(max(found.sizes))} in {varying.steps} steps{moved}): "
            f"{who} reserve{'s' * (not scaled)} {size(found.reserved)}; with one fixed size "
            f"{size(found.fixed)} would do",
            steps=varying.steps,
            per_step=1.0,
            lost_bytes=None if scaled else found.extra,
            basis="none" if scaled else "estimated",
            severity=Severity.NOTE if scaled else None,
            places=places_of(found.made_at, found.site),
            facts=(("first on the device", line),),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Pad batches to a few lengths, run the longest batch once before the loop, or write into a "
            "buffer allocated once. expandable_segments:True lets segments grow instead.",
            config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        )
