"""MEM014: one change would cut the peak of device memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity, Site
from auditor.recordings.schema import ZeroGradRow
from auditor.rule import NotLooked, Rule, knob

from .rows import LeanerRow

MIB = 2**20
SAID = {
    "gradients": "the gradients of the last step are held through the "
    "forward; cleared right after optimizer.step()",
    "foreach": "the optimizer steps with foreach, whose temporaries set "
    "the peak; with foreach=False",
}
SAME = 0.01
"""By how much the peaks of unchanged steps may differ as a share, before a changed one says
nothing.
"""

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
        self, leaner: Rows[LeanerRow], cleared: Rows[ZeroGradRow], machine: Machine
    ) -> Iterator[Finding]:
        peak = _unchanged(leaner)
        stepped = next((row.site for row in leaner if row.site is not None), None)
        for change in leaner:
            saved = peak - change.peak_allocated
            if not change.what or not change.changed:
                continue
            if saved < max(self.share * peak, round(self.least_mib * MIB)):
                continue
            yield Finding(
                (_cleared(cleared) if change.what == "gradients" else None) or stepped,
                f"{SAID[change.what]}, the rehearsed peak is {amounts.size(saved)} lower "
                f"({amounts.size(change.peak_allocated)} instead of {amounts.size(peak)})",
                lost_bytes=saved,
                basis=machine.bytes_basis,
                seen_on=machine.device,
                facts=(
                    ("peak as it is", amounts.size(peak)),
                    ("peak with the change", amounts.size(change.peak_allocated)),
                    ("tensors concerned", str(change.changed)),
                ),
                hints=Hints(change.what),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(REMEDIES[finding.hints_as(Hints).what])


def _unchanged(leaner: Rows[LeanerRow]) -> int:
    """Peak of the step as it is, in bytes. Raises :class:`NotLooked` where steps differ in
    themselves, or none completed.
    """
    same = [row.peak_allocated for row in leaner if not row.what]
    if len(same) < 2:
        raise NotLooked("too few steps were rehearsed with one thing changed")
    if max(same) - min(same) > SAME * max(same):
        raise NotLooked(
            "the steps' peaks of memory differ in themselves, so a changed step cannot be "
            "compared with them"
        )
    return min(same)


def _cleared(rows: Rows[ZeroGradRow]) -> Site | None:
    """The only line that clears gradients."""
    sites = {row.site for row in rows}
    return sites.pop() if len(sites) == 1 else None
