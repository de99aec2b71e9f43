"""SYNC008: a memset that holds the host until it is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace.driver_calls import DriverCalls, TraceDriver
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class SynchronousMemset(Rule):
    """
    The host waits for a memset in the step.

    ## What it finds
    In a trace: ``cudaMemset``, ``hipMemset`` or ``cuMemset...`` without ``Async`` on most steps,
    where the memory is of a kind that makes it synchronous (pinned or managed), or where the call
    was seen to wait: it began while the device worked and returned after the memset was done. Torch
    itself calls ``cudaMemsetAsync``; these come from extensions and other libraries. A
    ``cudaMemset`` of device memory that returned at once is not reported.

    ## Why it costs
    The memset comes after everything queued on the stream, so the host waits for all of that, and
    queues nothing meanwhile. The price is what a replay of the trace gains without it; where the
    trace cannot be replayed, the device's idle time that follows.

    ## Example
    ```python
    # needs: cuda
    import ctypes
    import torch

    cudart = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
    model = torch.nn.Linear(2048, 2048, device="cuda")
    x = torch.ones(2048, 2048, device="cuda")
    counts = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)

    def step():
        model(x).mean().backward()
        cudart.cudaMemset(ctypes.c_void_p(counts.data_ptr()), 0, ctypes.c_size_t(counts.numel()))
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    model = torch.nn.Linear(2048, 2048, device="cuda")
    x = torch.ones(2048, 2048, device="cuda")
    counts = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")

    def step():
        model(x).mean().backward()
        counts.zero_()
    ```
    In an extension: ``cudaMemsetAsync(pointer, 0, bytes, at::cuda::getCurrentCUDAStream())``.

    ## When to ignore
    The host reads the memory just after.

    ## Sources
    CUDA runtime API, "API synchronization behavior": a synchronous memset is asynchronous with
    respect to the host, except for pinned host memory and unified memory. Nsight Systems' expert
    rule *cuda_memset_sync* asks for the same kinds. The share of steps is ours.
    """

    code = "SYNC008"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.5, "Share of the trace's steps from which it is a warning; below it is a note."
    )

    def detect(self, driver: TraceDriver) -> Iterator[Finding]:
        priced = driver.marked and driver.timed
        for calls in driver.memsets:
            inside = (
                (("host time inside", f"{amounts.duration(calls.us / calls.n)} a call"),)
                if driver.timed
                else ()
            )
            seen = calls.pattern()
            often = (
                f"on {seen}"
                if driver.marked
                else f"{calls.n} times in the trace, which marks no steps"
            )
            memory = f" of {calls.memory.lower()} memory" if calls.memory else ""
            yield Finding(
                calls.site,
                f"{calls.api}{memory} holds the host {often}",
                steps=len(seen.seen) if driver.marked else 0,
                per_step=sum(calls.per_step) / seen.of if driver.marked else 0.0,
                lost_us_per_step=sum(calls.lost_us) / seen.of if priced else None,
                basis="estimated" if priced else "none",
                seen_on="trace",
                severity=None if self._usual(driver, calls) else Severity.NOTE,
                facts=(*inside, ("calls", str(calls.n))),
                changes=(calls.without(),) if priced else (),
            )

    def _usual(self, driver: TraceDriver, calls: DriverCalls) -> bool:
        return driver.marked and calls.pattern().share >= self.share

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Call the Async form on torch's current stream, or zero a tensor on the device with "
            "zero_()."
        )
