"""KERN008: a module is called several times in a row, with a small batch each time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import ForwardsInRow, Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .placing import places_of


@dataclass(frozen=True)
class ForwardsOfSmallBatches(Rule):
    """
    A module is called several times in a row with small batches.

    ## What it finds
    Three calls or more of one trained module in statements that follow one another, each with a
    small batch of its own: anchors, positives and negatives of a triplet. Silent: two calls (two
    views of a batch), calls of which one reads what another gave, batches of different shapes,
    large batches, calls with keywords, modules that keep a state or look at the whole batch (batch
    norm that is trained), a backward between the calls, and loops (KERN007).

    ## Why it costs
    Each call pays the host for every operator of the module, forward and backward. Of a small batch
    the device has finished before the next operator comes; one call on the joined batches pays
    once.

    ## Example
    ```python
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    criterion = torch.nn.TripletMarginLoss()

    def step():
        first, near, far = torch.randn(4, 8), torch.randn(4, 8), torch.randn(4, 8)
        a = net(first)
        p = net(near)
        n = net(far)
        criterion(a, p, n).backward()
    ```

    ## Use instead
    ```python
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    criterion = torch.nn.TripletMarginLoss()

    def step():
        first, near, far = torch.randn(4, 8), torch.randn(4, 8), torch.randn(4, 8)
        a, p, n = net(torch.cat([first, near, far])).chunk(3)
        criterion(a, p, n).backward()
    ```

    ## When to ignore
    The module compares the samples of a batch with one another, or its first dimension is not the
    batch; or the real batches fill the device.

    ## Sources
    PyTorch's performance tuning guide. tomotwin-cryoet #93: three passes of a triplet made one. The
    sizes and the share are ours.
    """

    code = "KERN008"
    severity = Severity.NOTE
    since = "0.1"

    share: float = knob(
        0.05,
        "Share of the precision pass's time outside backward, inside the calls, from which it is "
        "reported.",
    )
    elements: int = knob(
        8192, "Numbers in a batch above which the device may be busy with it for as long."
    )

    def detect(self, forwards: ForwardsInRow, machine: Machine) -> Iterator[Finding]:
        for each in forwards.worth(self.share, self.elements):
            yield Finding(
                each.sites[0],
                f"{each.module} is called {len(each.sites)} times in a row, each time with a small "
                f"batch of its own: {amounts.percent(each.share)} of the watched forward is inside",
                steps=each.steps,
                per_step=float(len(each.sites)),
                seen_on=machine.device,
                places=places_of(*each.sites),
                facts=(("numbers in a batch", f"{each.elements:,}"),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Join the batches, call the module once and cut the result: "
            "a, b, c = module(torch.cat([x, y, z])).chunk(3)."
        )
