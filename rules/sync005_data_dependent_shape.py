"""SYNC005: results whose size depends on values: ``nonzero``, boolean masks, ``unique``,
``bincount``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Reads
from auditor.evidence.recorded.reads import Place
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.model import Finding, Remedy, Severity

from .reading import ReadingRule
from .waiting import waits_in_trace


@dataclass(frozen=True)
class DataDependentShape(ReadingRule):
    """
    A result's size depends on values on the device.

    ## What it finds
    A line that makes, on most steps, a tensor whose size is known only when the values are:
    ``nonzero``, one-argument ``torch.where``, ``x[mask]``, ``x[mask] = tensor``, ``masked_select``,
    ``unique``, ``bincount``, and ``repeat_interleave`` with a tensor of repeats and no
    ``output_size``. Only for values computed from the model or moved to its device. ``x[mask] =
    0.0`` is not one: it writes in place.

    ## Why it costs
    The result cannot be allocated before its size is on the host, so the host waits until the
    device has computed it and all work queued before it. Sizes that vary also make the allocator's
    cache fit worse.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    x = torch.linspace(-1, 1, 64).view(8, 8)

    def step():
        error = (model(x) - x.mean(1, keepdim=True)).square()
        error[error > error.mean()].mean().backward()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    x = torch.linspace(-1, 1, 64).view(8, 8)

    def step():
        error = (model(x) - x.mean(1, keepdim=True)).square()
        hard = (error > error.mean()).to(error.dtype)
        ((error * hard).sum() / hard.sum()).backward()
    ```

    ## When to ignore
    The selection is small and saves far more work than one wait costs (sparse experts, hard example
    mining).

    ## Sources
    PyTorch performance tuning guide, "Avoid unnecessary CPU-GPU synchronization", lists
    ``nonzero``. The thresholds are ours.
    """

    code = "SYNC005"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    leads = 3

    def detect(self, reads: Reads) -> Iterator[Finding]:
        return self.report(reads, reads.places("shape"), self._sentence)

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("shape"),
            lambda place: f"the size of what `{place.operator}` gives depends on values",
        )

    def _sentence(self, place: Place) -> str:
        return f"the size of `{place.text}` depends on values{place.through}: {place.waits('it')}"

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Keep the size fixed: multiply by the mask, use torch.where or masked_fill, give "
            "output_size or minlength, "
            "or work on the indices that topk returns."
        )
        return Remedy(self.advice(finding, text))
