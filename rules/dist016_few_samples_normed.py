"""DIST016: batch norms see a few samples of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Machine, NormBatches
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .placing import places_of


@dataclass(frozen=True)
class FewSamplesNormed(Rule):
    """
    Batch norms see only the few samples of their own rank

    ## What it finds
    A module in `DistributedDataParallel` whose batch norms ran in training on at most four samples
    of each rank, none of them a `SyncBatchNorm`. A note, since images of high resolution are often
    trained so; a warning where a channel has at most 16 values. Silent: batch norms in evaluation
    mode, and norms that need no batch (`GroupNorm`, `LayerNorm`, `InstanceNorm`).

    ## Why it costs
    Mean and variance of so few samples are noise, which differs from rank to rank. The running
    statistics, with which the model is evaluated, are those of rank 0 alone.

    ## Example
    ```python
    # needs: ranks
    import torch
    from torch.nn.parallel import DistributedDataParallel

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).cuda()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.randn(2, 3, 64, 64, device="cuda")).square().mean().backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    # needs: ranks
    import torch
    from torch.nn.parallel import DistributedDataParallel

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.GroupNorm(4, 8)).cuda()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.randn(2, 3, 64, 64, device="cuda")).square().mean().backward()
        optimizer.step()
    ```

    ## When to ignore
    The model was trained well with so few samples before.

    ## Sources
    PyTorch documentation of ``SyncBatchNorm``; Wu and He, "Group Normalization" (2018), figure 5:
    errors of batch norm grow below 8 samples of a GPU. The thresholds are ours.
    """

    code = "DIST016"
    severity = Severity.NOTE
    since = "0.1"

    samples: int = knob(4, "Samples of a rank up to which it is reported.")
    values: int = knob(16, "Values of a channel up to which it is a warning.")
    least: int = knob(5, "Forwards that must have had no more.")
    ranks: int = knob(2, "Ranks below which there is nothing to share.")

    def detect(self, norms: NormBatches, machine: Machine) -> Iterator[Finding]:
        for each in norms.each:
            if each.samples > self.samples or each.ranks < self.ranks:
                continue
            if each.forwards < self.least:
                continue
            yield Finding(
                each.made_at,
                f"the batch norms of `{each.what}` see at most {each.samples} samples, those of "
                f"one rank of {each.ranks}: at the fewest, {each.values:,} values of a channel",
                steps=each.forwards,
                seen_on=machine.device,
                severity=Severity.WARNING if each.values <= self.values else None,
                facts=(("batch norms", f"{each.norms} ({each.norm})"),),
                places=places_of(each.made_at, each.ran_at),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "On GPUs wrap `torch.nn.SyncBatchNorm.convert_sync_batchnorm(module)`, whose norms see "
            "the samples of all ranks; or use GroupNorm, which needs no batch."
        )
