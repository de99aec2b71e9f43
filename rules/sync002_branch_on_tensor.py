"""SYNC002: Python asks a tensor for its truth: ``if t``, ``while t``, ``assert t``, ``bool(t)``."""

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
class BranchOnTensor(ReadingRule):
    """
    Python branches on a tensor in the step.

    ## What it finds
    A line that asks a tensor computed from the model, or moved to its device, for its truth on most
    steps: ``if t``, ``while t``, ``assert t``, ``a if t else b``, ``t and x``, ``not t``, ``t in
    xs``, ``bool(t)``, ``max(a, b)``. A branch on a number that was read with ``.item()`` is
    SYNC001, at the line of the read. Left out: tensors that never leave the host, and reads inside
    a data loader.

    ## Why it costs
    Python cannot choose a branch before it has the value, so the host waits until the device has
    computed it and all work queued before it. ``torch.compile`` and CUDA graphs cannot capture
    across such a branch either.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(8, 1)

    def step():
        loss = model(torch.ones(4, 8)).square().mean()
        if torch.isnan(loss):
            raise ValueError("loss is NaN")
        loss.backward()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    bad = torch.zeros((), dtype=torch.bool)

    def step():
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        bad.logical_or_(torch.isnan(loss.detach()))
    ```
    Look at ``bad`` every 50 steps or so. To choose between two values use ``torch.where``; to skip
    a bad update, multiply by the condition.

    ## When to ignore
    The two branches differ so much in work that the wait is the lesser cost.

    ## Sources
    ``bool(t)`` is ``aten::is_nonzero``, a scalar read. The thresholds are ours.
    """

    code = "SYNC002"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    def detect(self, reads: Reads) -> Iterator[Finding]:
        return self.report(reads, reads.places("branch"), self._sentence)

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("branch"),
            lambda place: f"Python branches on a tensor (`{place.operator}`)",
        )

    def _sentence(self, place: Place) -> str:
        return f"Python branches on the tensor `{place.text}`: {place.waits('this')}"

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Keep the decision on the device: torch.where, torch.minimum or a multiplication by "
            "the condition; "
            "for a guard, collect the condition in a tensor and look at it every so many steps."
        )
