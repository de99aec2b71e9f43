"""DIST005: gradients are averaged over the ranks after each micro-batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from auditor import amounts
from auditor.evidence import DataParallel, Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class AveragedTooOften(Rule):
    """
    Gradients are averaged over the ranks more than once for a step of the optimizer

    ## What it finds
    A module in `DistributedDataParallel` whose gradients several backward passes averaged before
    the optimizer stepped, as gradient accumulation does without `no_sync()`. Counted are backward
    passes after a forward outside of `no_sync()`, since the gradients were last cleared or stepped
    on. Silent with one rank.

    ## Why it costs
    Each average sends all gradients over the network and waits for the slowest rank. Only the last
    one before the step is needed: the sum of averages is the average of the sums.

    ## Example
    ```python
    # needs: ranks
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(64, 64, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        for _ in range(4):
            (model(torch.randn(8, 64, device="cuda")).square().mean() / 4).backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    # needs: ranks
    import contextlib
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(64, 64, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        for micro in range(4):
            with model.no_sync() if micro < 3 else contextlib.nullcontext():
                (model(torch.randn(8, 64, device="cuda")).square().mean() / 4).backward()
        optimizer.step()
    ```

    ## When to ignore
    Something reads the averaged gradients between the micro-batches, or memory is so short that
    buckets of unaveraged gradients do not fit.

    ## Sources
    PyTorch documentation of ``DistributedDataParallel.no_sync``. The thresholds are ours.
    """

    code = "DIST005"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(3, "Steps of an optimizer for which it must have happened.")
    share: float = knob(0.5, "Share of its steps that this must be at least.")
    ranks: int = knob(2, "Ranks below which nothing is sent.")

    def detect(self, modules: DataParallel, machine: Machine) -> Iterator[Finding]:
        for module in modules.each:
            often = [n for n in module.averaged if n > 1]
            if module.ranks < self.ranks or len(often) < self.least:
                continue
            if len(often) < self.share * len(module.averaged):
                continue
            usual = int(median(often))
            yield Finding(
                module.at,
                f"gradients of `{module.what}` are averaged over {module.ranks} ranks after each "
                f"of {usual} backward passes; the last of them is enough",
                steps=len(often),
                per_step=float(usual - 1),
                seen_on=machine.device,
                facts=(
                    ("averaged for a step of the optimizer", f"{usual} times"),
                    ("gradients", amounts.size(module.nbytes)),
                    (
                        "sent for nothing by each rank",
                        f"{amounts.size((usual - 1) * module.nbytes)} per step",
                    ),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Run forward and backward of every micro-batch but the last one in `with "
            "model.no_sync():`; both must be inside. Where these are several losses of one batch, "
            "add them and call backward once."
        )
