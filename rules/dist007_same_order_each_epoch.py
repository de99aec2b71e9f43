"""DIST007: a DistributedSampler shuffles each epoch alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Machine, SamplerEpochs, Source
from auditor.evidence.source.loops import loop_of_epochs
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .placing import places_of


@dataclass(frozen=True)
class SameOrderEachEpoch(Rule):
    """
    A DistributedSampler shuffles every epoch alike

    ## What it finds
    A `DistributedSampler` that shuffles, and began several epochs in one pass with the same epoch
    number: nobody called `set_epoch`. Named is the loop of the epochs, around the one over the
    batches or around the call of its function. Only samplers of loaders that most steps take batches from
    count, so that those of a validation are silent.

    ## Why it costs
    The order is drawn from the seed and the epoch's number. Without `set_epoch` each epoch shows
    the same batches in the same order, on the same rank: the model learns worse, without an error.

    ## Example
    ```python
    # needs: ranks
    import torch
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(64, 8))
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))

    def step():
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    ```

    ## Use instead
    ```python
    # needs: ranks
    import itertools
    import torch
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(64, 8))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    epochs = itertools.count()

    def step():
        sampler.set_epoch(next(epochs))
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    ```

    ## When to ignore
    The order is meant to be the same, for a comparison.

    ## Sources
    PyTorch documentation of ``DistributedSampler``: "In distributed mode, calling the
    ``set_epoch()`` method at the beginning of each epoch [...] is necessary to make shuffling work
    properly across multiple epochs." The thresholds are ours.
    """

    code = "DIST007"
    severity = Severity.WARNING
    since = "0.1"

    epochs: int = knob(2, "Epochs with one number that must have begun in a pass.")
    share: float = knob(0.5, "Share of the pass's steps that must take batches of the loader.")
    replicas: int = knob(2, "Ranks that the sampler must divide its samples among.")

    def detect(
        self, samplers: SamplerEpochs, machine: Machine, source: Source
    ) -> Iterator[Finding]:
        for each in samplers.each:
            if each.epochs < self.epochs or each.replicas < self.replicas:
                continue
            if each.share < self.share:
                continue
            loop = loop_of_epochs(source, each.stack)
            yield Finding(
                loop or each.site,
                f"{amounts.count(each.epochs, 'epoch')} began in the same order: the "
                f"DistributedSampler was told epoch {each.epoch} each time",
                steps=each.epochs,
                seen_on=machine.device,
                facts=(
                    ("epochs that began", f"{each.epochs}, all with number {each.epoch}"),
                    ("sampler", str(each.made_at) if each.made_at else "made by a library"),
                ),
                places=places_of(loop, each.site) if loop else (),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Call sampler.set_epoch(epoch) at the beginning of each epoch, before the loader is "
            "iterated; a run that resumes goes on with the epoch's number, not with 0."
        )
