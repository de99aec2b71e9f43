"""DATA011: the workers of a loader draw the same random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Machine, RepeatedDraws
from auditor.evidence.recorded.repeated_draws import Repeated
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule


@dataclass(frozen=True)
class WorkersDrawAlike(Rule):
    """
    The workers of a loader draw the same random numbers.

    ## What it finds
    A random generator that the dataset or the collate function holds (``np.random.default_rng``,
    ``RandomState``, ``random.Random``, ``torch.Generator``), of which each worker process has a
    copy in the same state: for their first batch two workers drew the same numbers from it. Silent:
    generators that a worker seeds for itself or for each sample, those of torch, ``random`` and
    ``np.random`` themselves, which torch seeds in each worker, and iterable datasets, whose
    workers may have to agree.

    ## Why it costs
    The augmentations of one worker are those of all others: with eight workers an epoch has an
    eighth of the noise that it seems to have. Workers that are started anew repeat it each epoch.

    ## Example
    ```python
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Noisy(Dataset):
        def __init__(self):
            self.rng = np.random.default_rng(0)

        def __len__(self):
            return 4000

        def __getitem__(self, index):
            return self.rng.standard_normal(8, dtype=np.float32)

    batches = iter(DataLoader(Noisy(), batch_size=4, num_workers=2))
    model = torch.nn.Linear(8, 1)

    def step():
        model(next(batches)).square().mean().backward()
    ```

    ## Use instead
    ```python
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset, get_worker_info

    class Noisy(Dataset):
        def __init__(self):
            self.rng = np.random.default_rng(0)

        def __len__(self):
            return 4000

        def __getitem__(self, index):
            return self.rng.standard_normal(8, dtype=np.float32)

    def seeded(worker):
        get_worker_info().dataset.rng = np.random.default_rng(torch.initial_seed())

    batches = iter(DataLoader(Noisy(), batch_size=4, num_workers=2, worker_init_fn=seeded))
    model = torch.nn.Linear(8, 1)

    def step():
        model(next(batches)).square().mean().backward()
    ```

    ## When to ignore
    The workers must draw alike, for instance to agree on an order of which each takes its part.

    ## Sources
    PyTorch documentation of ``torch.utils.data``, "Randomness in multi-process data loading":
    torch seeds ``random``, ``torch`` and NumPy's global generator in each worker, and no other.
    """

    code = "DATA011"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, draws: RepeatedDraws, machine: Machine) -> Iterator[Finding]:
        for each in draws.found:
            made = None if each.loader is None else each.loader.made_at
            yield Finding(
                each.site,
                f"{len(each.workers)} workers{_of(each)} draw the same numbers: each has a copy of "
                f"{each.name} ({each.kind}) in the same state",
                per_step=1.0,
                seen_on=machine.device,
                facts=(("loader", str(made)),) if made is not None else (),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Make the generator in the worker: in worker_init_fn, or when the first sample is "
            "asked for, from torch.initial_seed(), which differs by worker and epoch."
        )


def _of(each: Repeated) -> str:
    made = None if each.loader is None else each.loader.made_at
    return f" of the loader made at {made}" if made is not None and made != each.site else ""
