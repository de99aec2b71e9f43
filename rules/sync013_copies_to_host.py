"""SYNC013: a large share of the step is spent copying its results to the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.trace.steps import TraceSteps
from auditor.model import Finding, Remedy, Severity

from .transfers import TransferRule


@dataclass(frozen=True)
class StepBoundByCopiesToHost(TransferRule):
    """
    The device waits for copies to the host.

    ## What it finds
    In a trace: copies from the device to the host that take a large share of the steps, on the
    device's own clock, while nothing else runs on it, in the first step and after it. Copies beside
    kernels are hidden and not counted.

    ## Why it costs
    While only the copy runs, the device computes nothing; and where the memory on the host is
    pageable, or the program waits for the values, nothing is queued behind it either. The link
    (PCIe 4.0 x16: about 25 GB/s) is 50 times slower than the device's memory.

    ## Example
    ```python
    # needs: cuda
    import torch

    model = torch.nn.Linear(4096, 4096, device="cuda")
    x = torch.ones(8192, 4096, device="cuda")
    kept = []

    def step():
        out = model(x)
        out.mean().backward()
        kept[:] = [out.detach().cpu()]
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    model = torch.nn.Linear(4096, 4096, device="cuda")
    x = torch.ones(8192, 4096, device="cuda")
    kept = []

    def step():
        out = model(x)
        out.mean().backward()
        kept[:] = [out.detach().mean(dim=0)]
    ```
    Reduce on the device and copy the result, or copy every so many steps. Where all of it must go
    to the host (offloading): into pinned memory, with ``non_blocking=True``, on a side stream while
    the next kernels run.

    ## When to ignore
    The trace is a test of copies, or of a phase that stores its results (a checkpoint, an
    evaluation).

    ## Sources
    The twin of DATA008, with its thresholds (TraceML: 10 % and 20 % of the step on the device's
    clock); ours count only what no kernel hides. With fewer than three steps, steps that the
    profiler did not mark, or copies that recur on no two steps after the first, it is a note. The
    price is what a replay of the trace gains where the copies run beside other work; where it cannot
    be replayed, their time. In both what pinned memory would save is left out: that is part of the
    price of the waits for them.
    """

    code = "SYNC013"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, steps: TraceSteps) -> Iterator[Finding]:
        yield from self.bound(steps, "to_host", "to the host")

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Reduce on the device and copy the result, or copy every so many steps; what must go "
            "to the host goes into pinned "
            "memory with non_blocking=True, on a side stream while the next kernels run."
        )
