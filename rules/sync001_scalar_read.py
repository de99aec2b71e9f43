"""SYNC001: ``.item()``, ``float(t)``, ``int(t)``, ``torch.equal`` in the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Reads, Source
from auditor.evidence.recorded.reads import Place
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.model import Finding, Remedy, Severity

from .reading import LOGS_OR_SUMS, ReadHints, ReadingRule
from .waiting import waits_in_trace

CHECKS = ("__init__", "_validate_sample")
"""Functions of torch/distributions/distribution.py that read only to check what they were given."""


@dataclass(frozen=True)
class ScalarReadEveryStep(ReadingRule):
    """
    A tensor becomes a Python number in the step.

    ## What it finds
    A line that turns a tensor computed from the model, or moved to its device, into a Python number
    on most steps: ``.item()``, ``float(t)``, ``int(t)``, an f-string, ``math.isnan(t)``, a tensor
    as an index, ``torch.equal``. Where a library function reads on the line's behalf, it is named
    and the finding is a note. On a CPU run these are the reads that would be host syncs on a GPU.
    Left out: values that never leave the host, a data loader's own reads, and the reads that belong
    to ``GradScaler`` and the optimizers themselves.

    ## Why it costs
    The value must come back from the device, so the host waits until the device has finished all
    work queued before it, and queues nothing meanwhile. The device then idles until new work
    arrives.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    history = []

    def step():
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        history.append(loss.item())
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    total = torch.zeros(())

    def step():
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        total.add_(loss.detach())
    ```
    Read ``total`` every 50 steps or so: a read at a constant distance of ten steps or more is not
    reported.

    ## When to ignore
    The number decides what the step does next (line search, a stopping rule), or the step is so
    long that one wait in it is nothing: compare the measured hold, where there is one, with the
    step's time.

    ## Sources
    The reading operations are those that ``torch.cuda.set_sync_debug_mode`` warns of. The
    thresholds are ours.
    """

    code = "SYNC001"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    edits = LOGS_OR_SUMS
    leads = 1

    def detect(self, reads: Reads, source: Source) -> Iterator[Finding]:
        return self.less_often(
            self.report(reads, reads.places("scalar"), self._sentence), source, reads
        )

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("scalar"),
            lambda place: f"`{place.operator}` turns a tensor into a Python number",
        )

    def _sentence(self, place: Place) -> str:
        return (
            f"`{place.text}` turns a tensor into a Python number{place.through}: "
            f"{place.waits('it')}"
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        library = finding.hints_as(ReadHints).library
        if any(library.endswith(f"distribution.py:{name}") for name in CHECKS):
            return Remedy(
                "The distribution checks its arguments and samples, and the check is what reads: "
                "make it with "
                "validate_args=False, or call "
                "torch.distributions.Distribution.set_default_validate_args(False) once at the "
                "start."
            )
        text = (
            "Keep the value on the device: add loss.detach() to a running tensor, or collect "
            "several and read them with one "
            "torch.stack(...).tolist(), and read only every so many steps."
        )
        return self.read_less(finding, text)
