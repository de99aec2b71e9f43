"""DATA008: a large share of the step is spent copying its input to the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace_steps import TraceSteps
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class StepBoundByCopiesToDevice(Rule):
    """
    The device waits for copies from the host.

    ## What it finds
    In a trace: copies from the host to the device that take a large share of the steps, on the device's own clock, while
    nothing else runs on it. Copies beside kernels are hidden and not counted.

    ## Why it costs
    While only the copy runs, the device computes nothing. The link (PCIe 4.0 x16: about 25 GB/s) is 50 times slower than
    the device's memory.

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
    Where the data does not fit on the device: send it small (``uint8``, then ``.float()`` there), from pinned memory with
    ``non_blocking=True``, and send the next batch on a side stream while this one computes.

    ## When to ignore
    The trace is a test of copies; or it was cut down to small batches to be small itself.

    ## Sources
    Thresholds of TraceML (10 % and 20 % of the step on the device's clock); ours count only what no kernel hides. With fewer
    than three steps, or steps that the profiler did not mark, it is a note.
    """

    code = "DATA008"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.1, "Share of the steps' time in copies that nothing hides from which it is a warning (TraceML).")
    severe: float = knob(0.2, "The same from which it is an error (TraceML).")
    least_us: float = knob(100.0, "Mean time per step in us below which nothing is reported.")

    def detect(self, steps: TraceSteps) -> Iterator[Finding]:
        steps.need_a_device()
        share, mean = steps.share("to_device_alone_us"), steps.mean("to_device_alone_us")
        if share < self.share or mean < self.least_us:
            return
        often = steps.steps_above("to_device_alone_us", self.share)
        if 2 * often < len(steps.steps):
            return
        marked = steps.marked
        yield Finding(
            None,
            f"for {amounts.percent(share)} of {steps.where} the device does nothing but copy from the host",
            steps=often if marked else 0,
            per_step=1.0 if marked else 0.0,
            lost_us_per_step=mean if marked else None,
            basis="estimated" if marked else "none",
            seen_on="trace",
            severity=self._severity(share) if steps.certain else Severity.NOTE,
            facts=(
                ("copies to the device", f"{amounts.percent(steps.share('to_device_us'))} of the time"),
                ("with nothing beside them", f"{amounts.duration(mean)} per step"),
                ("steps from", steps.source),
            ),
        )

    def _severity(self, share: float) -> Severity | None:
        return Severity.ERROR if share >= self.severe else None

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Send less (uint8 or half precision, converted on the device), from pinned memory with non_blocking=True, and the "
            "next batch on a side stream while this one computes; or keep the data on the device."
        )
