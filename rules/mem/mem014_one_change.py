"""MEM014: one change would cut the peak of device memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.zero_grad import ZeroGrads
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

from .peak_experiments import Change, PeakExperiments

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
    """One change would cut the peak of device memory."""

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
