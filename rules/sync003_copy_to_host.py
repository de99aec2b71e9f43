"""SYNC003: ``.cpu()``, ``.numpy()``, ``.tolist()``, ``.to("cpu")``, ``print(t)`` in the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Reads, Source
from auditor.evidence.recorded.reads import Place
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.model import Finding, Remedy, Severity

from .reading import LOGS_OR_SUMS, ReadingRule
from .waiting import waits_in_trace


@dataclass(frozen=True)
class CopyToHostEveryStep(ReadingRule):
    """
    A tensor is copied to the host in the step.

    ## What it finds
    A line that copies a tensor computed from the model, or moved to its device, to the host on most
    steps: ``.cpu()``, ``.to("cpu")``, ``.numpy()``, ``.tolist()``, or prints it. ``t.cpu().item()``
    is one copy: its ``.item()`` reads a host tensor. A line that does several things is reported
    once. Left out: tensors that never leave the host, and copies inside a data loader.

    ## Why it costs
    A copy into ordinary (pageable) host memory returns when the data has arrived: the host waits
    for all work queued before it on the device, then for the transfer. Printing a tensor copies it
    and runs further operations to format it.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    outputs = []

    def step():
        out = model(torch.ones(4, 8))
        out.mean().backward()
        outputs.append(out.detach().cpu())
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    outputs = torch.zeros(64, 4, 1)
    count = 0

    def step():
        global count
        out = model(torch.ones(4, 8))
        out.mean().backward()
        outputs[count % 64].copy_(out.detach())
        count += 1
    ```
    Copy the buffer to the host when it is full. Where the copy must happen on each step, copy into
    pinned memory with ``non_blocking=True`` and use the data one step later.

    ## When to ignore
    The host needs the data at once: an environment in reinforcement learning, a metric that exists
    only in NumPy.

    ## Sources
    Copies between device and pageable memory synchronise with the host: CUDA runtime API, "API
    synchronization behavior". The thresholds are ours.
    """

    code = "SYNC003"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    edits = LOGS_OR_SUMS
    leads = 2

    def detect(self, reads: Reads, source: Source) -> Iterator[Finding]:
        return self.less_often(
            self.report(reads, reads.places("transfer"), self._sentence), source, reads
        )

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("copy to host"),
            lambda place: f"`{place.operator}` copies a tensor to the host",
        )

    def _sentence(self, place: Place) -> str:
        return f"`{place.text}` copies a tensor to the host{place.through}: {place.waits('it')}"

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Collect on the device and copy once every so many steps; or copy into pinned memory "
            "with non_blocking=True "
            "and read it a step later."
        )
        return self.read_less(finding, text)
