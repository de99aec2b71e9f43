"""DIST008: several ranks train on the same batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import DataParallel, Machine, RankBatches
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class SameBatchesOnAllRanks(Rule):
    """
    All ranks of a data parallel training get the same batches

    ## What it finds
    A `DataLoader` that gives all ranks equal batches step by step, where a module is in a
    `DistributedDataParallel` over all of them. The ranks' batches are compared by digests; the
    batches themselves are not kept. Silent: batches that are all alike, loaders that few steps take
    batches from or that are read without gradients (a validation), and modules that are spread over
    a part of the ranks, since those that share a piece of the model get the same data.

    ## Why it costs
    The average of equal gradients is the gradient of one rank: the other devices compute it again,
    for nothing.

    ## Example
    ```python
    # needs: ranks
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset

    model = DistributedDataParallel(torch.nn.Linear(8, 1, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(512, 8)), batch_size=16, shuffle=True)

    def step():
        for (x,) in loader:
            optimizer.zero_grad()
            model(x.cuda()).square().mean().backward()
            optimizer.step()
    ```

    ## Use instead
    ```python
    # needs: ranks
    import itertools
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    model = DistributedDataParallel(torch.nn.Linear(8, 1, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(512, 8))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    epochs = itertools.count()

    def step():
        sampler.set_epoch(next(epochs))
        for (x,) in loader:
            optimizer.zero_grad()
            model(x.cuda()).square().mean().backward()
            optimizer.step()
    ```

    ## When to ignore
    Each rank augments the same samples in its own way, on its device, and that is meant.

    ## Sources
    PyTorch documentation of ``DistributedDataParallel``: "the input [...] should be split across
    the GPUs"; ``DistributedSampler``. The thresholds are ours.
    """

    code = "DIST008"
    severity = Severity.ERROR
    since = "0.1"

    least: int = knob(5, "Steps in which all ranks must have got equal batches.")
    share: float = knob(0.9, "Share of the steps with batches that these must be at least.")
    fed: float = knob(0.5, "Share of all steps that must have taken batches of the loader.")
    different: int = knob(3, "Batches among them that must differ from one another.")

    def detect(
        self, batches: RankBatches, modules: DataParallel, machine: Machine
    ) -> Iterator[Finding]:
        over_all = any(
            module.ranks == batches.world_size and module.averaged for module in modules.each
        )
        for each in batches.each:
            if not over_all or each.steps < max(self.least, self.share * each.of):
                continue
            if each.different < self.different or each.fed < self.fed:
                continue
            yield Finding(
                each.made_at,
                f"{each.ranks} ranks got the same batches in {each.steps} of {each.of} steps: "
                "what one rank computes, the others compute again",
                steps=each.steps,
                per_step=1.0,
                seen_on=machine.device,
                facts=(
                    ("ranks that got equal batches", str(each.ranks)),
                    ("different batches among them", str(each.different)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Give the loader sampler=DistributedSampler(dataset) in the place of shuffle=True, and "
            "call sampler.set_epoch(epoch) at the beginning of each epoch; an IterableDataset takes "
            "its own share by torch.distributed.get_rank()."
        )
