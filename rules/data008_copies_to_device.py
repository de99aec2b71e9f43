"""DATA008: a large share of the step is spent copying its input to the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.trace.steps import TraceSteps
from auditor.model import Finding, Remedy, Severity

from .transfers import TransferRule


@dataclass(frozen=True)
class StepBoundByCopiesToDevice(TransferRule):
    """
    The device waits for copies from the host.

    ## What it finds
    In a trace: copies from the host to the device that take a large share of the steps, on the
    device's own clock, while nothing else runs on it, in the first step (which may send the model)
    and after it. Copies beside kernels are hidden and not counted.

    ## Why it costs
    While only the copy runs, the device computes nothing. The link (PCIe 4.0 x16: about 25 GB/s) is
    50 times slower than the device's memory.

    ## Example
    ```python
    # needs: cuda
    import torch

    model = torch.nn.Linear(4096, 1, device="cuda")
    images = torch.ones(8192, 4096)

    def step():
        model(images.to("cuda")).mean().backward()
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    model = torch.nn.Linear(4096, 1, device="cuda")
    images = torch.ones(8192, 4096, dtype=torch.uint8, device="cuda")

    def step():
        model(images.float()).mean().backward()
    ```
    Where the data does not fit on the device: send it small (``uint8``, then ``.float()`` there),
    from pinned memory with ``non_blocking=True``, and send the next batch on a side stream while
    this one computes.

    ## When to ignore
    The trace is a test of copies; or it was cut down to small batches to be small itself.

    ## Sources
    Thresholds of TraceML (10 % and 20 % of the step on the device's clock); ours count only what no
    kernel hides. With fewer than three steps, steps that the profiler did not mark, or copies that
    recur on no two steps after the first, it is a note. The price is what a replay of the
    trace gains where the copies run beside other work; where it cannot be replayed, their time. In
    both what pinned memory would save is left out: that is part of the price of the waits for them.
    """

    code = "DATA008"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, steps: TraceSteps) -> Iterator[Finding]:
        yield from self.bound(steps, "to_device", "from the host")

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Send less (uint8 or half precision, converted on the device), from pinned memory with "
            "non_blocking=True, and the "
            "next batch on a side stream while this one computes; or keep the data on the device."
        )
