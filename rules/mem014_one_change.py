"""MEM014: one change would cut the peak of device memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Machine, PeakExperiments, ZeroGrads
from auditor.evidence.recorded.peak_experiments import Change
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

MIB = 2**20
SAID = {
    "gradients": "the gradients of the last step are held through the "
    "forward; cleared right after optimizer.step()",
    "foreach": "the optimizer steps with foreach, whose temporaries set "
    "the peak; with foreach=False",
}
REMEDIES = {
    "gradients": "Call zero_grad() (set_to_none=True, the default) right "
    "after optimizer.step(), or before the forward.",
    "foreach": "Make the optimizer with fused=True, which needs no "
    "temporaries, or with foreach=False, which is slower.",
}


@dataclass(frozen=True)
class Hints:
    """The one thing that was changed: a key of ``REMEDIES``."""

    what: str


@dataclass(frozen=True)
class PeakMemoryCutByOneChange(Rule):
    """
    One change would cut the peak of device memory.

    ## What it finds
    At its end a rehearsal takes a few more steps with one thing changed at a time, and compares the
    peaks in the simulated allocator: gradients cleared before the forward (only where the step
    clears them itself before its backward, so that nothing else changes), and optimizers without
    foreach. What saves 5 % of the peak and 16 MiB is a note. Other changes (a smaller batch,
    another precision, activation checkpointing) are not tried: they change what is computed.

    ## Why it costs
    The peak decides which batch fits. Gradients that live until ``zero_grad`` behind the forward
    lie beside the activations; foreach implementations make lists of temporaries as large as all
    parameters.

    ## Example
    ```python
    # needs: cuda
    import torch

    weights = [torch.ones(2**20, device="cuda", requires_grad=True) for _ in range(8)]
    optimizer = torch.optim.SGD(weights, lr=0.1, foreach=False)

    def step():
        loss = sum(weight.relu().square().mean() for weight in weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    weights = [torch.ones(2**20, device="cuda", requires_grad=True) for _ in range(8)]
    optimizer = torch.optim.SGD(weights, lr=0.1, foreach=False)

    def step():
        loss = sum(weight.relu().square().mean() for weight in weights)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    ```

    ## When to ignore
    The step fits with room to spare. Without foreach an optimizer launches its kernels for each
    parameter alone (OPT001).

    ## Sources
    The peaks are those of the rehearsal's simulated allocator, within 3 % of torch's MemTracker
    (docs/memory.md). Thresholds are ours.
    """

    code = "MEM014"
    severity = Severity.NOTE
    since = "0.1"
    rehearsed = True

    share: float = knob(0.05, "Share of the peak that the change must save.")
    least_mib: float = knob(16.0, "MiB that it must save.")

    def detect(
        self, leaner: PeakExperiments, zero_grads: ZeroGrads, machine: Machine
    ) -> Iterator[Finding]:
        for change, saved in leaner.savings(
            share=self.share, least_bytes=round(self.least_mib * MIB)
        ):
            yield Finding(
                _site(change, zero_grads),
                f"{SAID[change.what]}, the rehearsed peak is {amounts.size(saved)} lower "
                f"({amounts.size(change.peak)} instead of "
                f"{amounts.size(leaner.peak)})",
                lost_bytes=saved,
                basis=machine.bytes_basis,
                seen_on=machine.device,
                facts=(
                    ("peak as it is", amounts.size(leaner.peak)),
                    ("peak with the change", amounts.size(change.peak)),
                    ("tensors concerned", str(change.tensors)),
                ),
                hints=Hints(change.what),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(REMEDIES[finding.hints_as(Hints).what])


def _site(change: Change, zero_grads: ZeroGrads) -> Site | None:
    """The line to edit: of gradients the only one that clears them, else that of the optimizer's
    step.
    """
    sites = {call.site for call in zero_grads.calls} if change.what == "gradients" else set()
    return sites.pop() if len(sites) == 1 else change.site
