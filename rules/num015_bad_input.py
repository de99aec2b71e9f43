"""NUM015: NaN or infinities that came into the step with its data and reached the weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Machine, Nonfinite
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule


@dataclass(frozen=True)
class BatchNotFinite(Rule):
    """
    A batch holds NaN or infinities, and they reach the weights.

    ## What it finds
    The first step after which a parameter or a gradient was not finite, where a replay of that step
    shows that the value was in the data already when the step used it: no operator of the step made
    it. The line is that of its first use. A missing value that is replaced, masked, or only used in
    a metric is silent, and so is a mask of ``-inf``.

    ## Why it costs
    One bad sample makes every weight NaN, whatever guards the model itself has.

    ## Example
    ```python
    import torch

    def make():
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.ones(2, 4)
        data[1, 2] = float("nan")

        def step():
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()

        return step
    ```

    ## Use instead
    ```python
    import torch

    def make():
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = torch.ones(2, 4)
        data[1, 2] = float("nan")
        data = torch.nan_to_num(data)

        def step():
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()

        return step
    ```
    Better, drop the sample in the dataset or the collate function, and count how many there are.

    ## When to ignore
    Never while the weights matter.

    ## Sources
    IEEE 754: NaN and infinity propagate through sums and products.
    """

    code = "NUM015"
    severity = Severity.ERROR
    since = "0.1"

    def detect(self, nonfinite: Nonfinite, machine: Machine) -> Iterator[Finding]:
        birth = nonfinite.birth
        if birth is None or not birth.came_with_data:
            return
        given = birth.inputs[0].share_nonfinite if birth.inputs else None
        share = f" ({given:.3g} of it)" if given else ""
        value = "NaN" if birth.value == "nan" else birth.value
        reached = (
            f"after step {nonfinite.step} {nonfinite.tensors[0]} was not finite"
            if nonfinite.tensors
            else ""
        )
        yield Finding(
            birth.site,
            f"the data of step {birth.step} held {value}{share} when it was first used here; "
            f"{reached}",
            steps=1,
            per_step=1 / max(1, nonfinite.steps),
            seen_on=machine.device,
            facts=nonfinite.facts,
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Look for the sample: check isfinite in the dataset or the collate function, and drop "
            "or repair it there."
        )
