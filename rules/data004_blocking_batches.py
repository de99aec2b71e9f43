"""DATA004: batches in pinned memory are copied to the device, and the host waits all the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Configs, Copies, Source
from auditor.model import Finding, Remedy, Severity

from .copying import NOT_WAITING, CopyRule, Moves


@dataclass(frozen=True)
class PinnedBatchCopiedBlocking(CopyRule):
    """
    Pinned batches are copied to the device and the host waits.

    ## What it finds
    ``.to(device)`` or ``.cuda()`` without ``non_blocking=True`` on batches of a loader that does
    pin its memory. Seen in a rehearsal of the GPU path.

    ## Why it costs
    The loader took the trouble to page-lock the batch so that the device can fetch it by itself,
    and then the host waits for the copy, and for everything queued before it.

    ## Example
    ```python
    # needs: rehearsal
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(8, 1, device="cuda")
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4, pin_memory=True))

    def step():
        (x,) = next(batches)
        model(x.to("cuda")).mean().backward()
    ```

    ## Use instead
    ```python
    # needs: rehearsal
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(8, 1, device="cuda")
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4, pin_memory=True))

    def step():
        (x,) = next(batches)
        model(x.to("cuda", non_blocking=True)).mean().backward()
    ```

    ## When to ignore
    The step reads a value on the host just before: then nothing is queued and the wait is only the
    copy itself.

    ## Sources
    PyTorch's DataLoader documentation, "Memory Pinning"; aten/src/ATen/native/cuda/Copy.cu. The
    threshold is ours.
    """

    code = "DATA004"
    severity = Severity.NOTE
    since = "0.1"
    edits = (NOT_WAITING,)
    leads = 1

    def detect(self, copies: Copies, source: Source, configs: Configs) -> Iterator[Finding]:
        for place in self.usual(copies.sites("batch", blocking=True, pinned=True)):
            moves = self.waiting_moves(place, source, configs)
            decided = self.waits_because(moves)
            how = f"with {decided}" if decided else "without non_blocking=True"
            message = f"{place.amount} of pinned batches are copied to the device on {place.pattern} {how}"
            yield self.report(copies, place, place.site, message, hints=Moves(moves))

    def remedy(self, finding: Finding) -> Remedy | None:
        text = "Move the batch with non_blocking=True: the copy then runs while the host goes on."
        edits = tuple(self.without_waiting(finding))
        advice, refused = self.decided_elsewhere(finding)
        return Remedy(text + advice, edits, refused=None if edits else refused)
