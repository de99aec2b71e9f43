"""MEM016: distances of all pairs through a tensor of all differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Machine, PairwiseDifferences
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class Hints:
    """What is summed: ``squares`` or ``absolute``."""

    kind: str


@dataclass(frozen=True)
class AllDifferences(Rule):
    """
    Distances of all pairs are made through a tensor of all differences.

    ## What it finds
    A subtraction that broadcasts two sets of rows against one another
    (``x[:, None] - y[None, :]``), of which nothing is used but the sum over the last dimension of
    its squares or absolute values. Silent: differences that something else reads (their direction,
    weights on them), rows of few numbers, small tensors.

    ## Why it costs
    The tensor is as many times larger than the distances as a row has numbers, and so are its
    squares; with gradients, it is kept for the backward.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(32, 32)

    def step():
        x, y = model(torch.randn(128, 32)), torch.randn(128, 32)
        (x[:, None] - y[None, :]).pow(2).sum(-1).mean().backward()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(32, 32)

    def step():
        x, y = model(torch.randn(128, 32)), torch.randn(128, 32)
        torch.cdist(x, y).pow(2).mean().backward()
    ```

    ## When to ignore
    The rows lie so close to one another that digits matter which a product of matrices loses
    (``torch.cdist(..., compute_mode="donot_use_mm_for_euclid_dist")`` keeps them), or the memory is
    there.

    ## Sources
    PyTorch documentation of ``torch.cdist``. pytorch-softdtw-cuda #23: pairwise distances with less
    memory. The sizes are ours.
    """

    code = "MEM016"
    severity = Severity.NOTE
    since = "0.1"

    least: int = knob(1 << 20, "Bytes of the tensor of differences from which it is reported.")

    def detect(self, differences: PairwiseDifferences, machine: Machine) -> Iterator[Finding]:
        for each in differences.lines:
            if each.nbytes < self.least:
                continue
            kept = ", and keeps them for the backward" if each.graph else ""
            yield Finding(
                each.site,
                f"distances of all pairs: this line makes {amounts.size(each.nbytes)} of "
                f"differences, {each.size} numbers for each distance{kept}",
                steps=each.steps,
                per_step=each.per_step,
                seen_on=machine.device,
                facts=(
                    ("differences", amounts.size(each.nbytes)),
                    ("distances", amounts.size(each.nbytes // each.size)),
                ),
                hints=Hints(each.kind),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        if finding.hints_as(Hints).kind == "absolute":
            return Remedy("torch.cdist(x, y, p=1) makes the same sums without the differences.")
        return Remedy(
            "torch.cdist(x, y) makes the distances without the differences (squared: .pow(2)); or "
            "take squared norms and one product of matrices: x2 + y2 - 2 * x @ y.mT, clamped at 0."
        )
