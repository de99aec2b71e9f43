"""CKPT007: optimizer moments that are dead or out of all proportion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

if TYPE_CHECKING:
    from auditor.evidence.scans import TensorFacts

FEWEST = 3
"""Tensors with moments below which there is no proportion to be out of."""


@dataclass(frozen=True)
class OptimizerMomentsSpoiled(Rule):
    """Moments of the optimizer are dead or exploded."""

    code = "CKPT007"
    severity = Severity.WARNING
    since = "0.1"

    steps: int = knob(10, "Steps of the optimizer before a moment of zero says something.")
    ratio: float = knob(
        1e6, "How many times the median of all parameters a remembered gradient must be."
    )

    def detect(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            for optimizer, moments in checkpoint.moments:
                dead = [
                    tensor for tensor, gradient in moments if gradient == 0.0 and _finite(tensor)
                ]
                if dead and (optimizer.steps or 0) >= self.steps:
                    yield _finding(
                        checkpoint,
                        dead,
                        len(moments),
                        f"zero after {optimizer.steps} steps: no gradient reached it",
                    )
                usual = median([gradient for _, gradient in moments if gradient] or [0.0])
                high = [tensor for tensor, gradient in moments if gradient > self.ratio * usual > 0]
                if high and len(moments) >= FEWEST:
                    what = f"a gradient more than {self.ratio:g} times the median of all"
                    yield _finding(checkpoint, high, len(moments), f"what is left of {what}")

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Look whether the parameter takes part in the loss (a detach, a factor of 0); clip "
            "gradients against outliers."
        )


def _finite(tensor: TensorFacts) -> bool:
    return tensor.tally is not None and tensor.tally.count > 0 and not tensor.tally.nonfinite


def _finding(checkpoint: Checkpoint, tensors: list[TensorFacts], of: int, what: str) -> Finding:
    more = f" (and {len(tensors) - 1} more of {of})" if len(tensors) > 1 else ""
    facts = (
        ("file", checkpoint.scan.path),
        *((each.name, f"shape {list(each.shape)}") for each in tensors[:50]),
    )
    return Finding(
        None,
        f"{checkpoint.name}: {tensors[0].name}{more} is {what}",
        steps=1,
        seen_on="source",
        facts=facts,
    )
