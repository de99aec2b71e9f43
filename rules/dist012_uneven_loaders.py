"""DIST012: the ranks' loaders have different numbers of batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import DataParallel, LoaderLengths, Machine, Source
from auditor.evidence.source.loops import exhausts, joins, trains
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule


@dataclass(frozen=True)
class UnevenLoaders(Rule):
    """
    The ranks of a data parallel training have different numbers of batches

    ## What it finds
    A `DataLoader` with a length, made on the same line on all ranks, that has more batches on one
    rank than on another, where a `for` loop goes over it to its end and trains a module in a
    `DistributedDataParallel` over all of these ranks. It is found before an epoch ends. Silent:
    loops that are left early or go over a part (`break`, `islice`, `zip`, `next`), and files that
    use `model.join()` or `Join`.

    ## Why it costs
    At the end of the epoch the ranks with more batches wait for gradients of those that have none
    left. The job hangs until the backend's time limit, or the next epoch's gradients are averaged
    with those of this one.

    ## Example
    ```python
    # needs: ranks
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, Subset, TensorDataset

    model = DistributedDataParallel(torch.nn.Linear(8, 1, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(513, 8))
    share = Subset(data, range(dist.get_rank(), 513, dist.get_world_size()))
    loader = DataLoader(share, batch_size=16)

    def step():
        for (x,) in loader:
            optimizer.zero_grad()
            model(x.cuda()).square().mean().backward()
            optimizer.step()
    ```

    ## Use instead
    ```python
    # needs: ranks
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    model = DistributedDataParallel(torch.nn.Linear(8, 1, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(513, 8))
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data, shuffle=False))

    def step():
        for (x,) in loader:
            optimizer.zero_grad()
            model(x.cuda()).square().mean().backward()
            optimizer.step()
    ```

    ## When to ignore
    Something that the source does not show keeps the ranks together.

    ## Sources
    PyTorch documentation of ``DistributedDataParallel.join`` ("uneven inputs") and of
    ``DistributedSampler``, which pads or drops so that all ranks get as many samples.
    """

    code = "DIST012"
    severity = Severity.ERROR
    since = "0.1"

    def detect(
        self, lengths: LoaderLengths, modules: DataParallel, source: Source, machine: Machine
    ) -> Iterator[Finding]:
        for each in lengths.each:
            ranks = len(each.batches)
            over_all = any(one.ranks == ranks and one.averaged for one in modules.each)
            if not each.uneven or not over_all or joins(source, each.at.file):
                continue
            if not exhausts(source, each.at) or not trains(source, each.at.file, each.at.line):
                continue
            most = max(each.batches, key=lambda one: one[1])
            fewest = min(each.batches, key=lambda one: one[1])
            yield Finding(
                each.made_at,
                f"rank {most[0]} has {amounts.count(most[1], 'batch', 'batches')} an epoch and "
                f"rank {fewest[0]} has {fewest[1]:,}: the loop at {each.at} goes to the end of "
                "both, and the ranks with more batches wait for gradients that do not come",
                seen_on=machine.device,
                facts=(
                    ("batches of an epoch by rank", ", ".join(f"{n:,}" for _, n in each.batches)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Let a DistributedSampler divide the dataset: it pads the shares to one length "
            "(drop_last=True cuts them). Where the shares must differ, train inside "
            "`with model.join():`."
        )
