"""MEM014, 16 and 18: peaks that one change lowers, and one that the largest batch raises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows, together
from auditor.model import Finding, Remedy, Severity, Site
from auditor.recordings.schema.graph import ZeroGradRow
from auditor.rule import NotLooked, Rule, knob

from .rows import DifferencesRow, LeanerRow

MIB = 2**20
SAID = {
    "gradients": "the gradients of the last step stay allocated during the "
    "forward; cleared right after optimizer.step()",
    "foreach": "the temporary tensors of the optimizer's foreach step set the peak; "
    "with foreach=False",
}
SAME = 0.01
"""By how much the peaks of unchanged steps may differ as a share, before a changed one says
nothing.
"""

REMEDIES = {
    "gradients": "Call zero_grad() (set_to_none=True is the default) right "
    "after optimizer.step(), or before the forward.",
    "foreach": "Create the optimizer with fused=True, which needs no "
    "temporary tensors, or with foreach=False, which is slower.",
}


@dataclass(frozen=True)
class PeakMemoryCutByOneChange(Rule):
    """One change would lower the peak of device memory."""

    code = "MEM014"
    severity = Severity.NOTE
    since = "0.1"
    rehearsed = True

    share: float = knob(0.05, "Report only changes that save at least this share of the peak.")
    least_mib: float = knob(16.0, "Report only changes that save at least this many MiB.")

    def detect(
        self, leaner: Rows[LeanerRow], cleared: Rows[ZeroGradRow], machine: Machine
    ) -> Iterator[Finding]:
        peak = _unchanged(leaner)
        stepped = next((row.site for row in leaner if row.site is not None), None)
        for change in leaner:
            saved = peak - change.peak_allocated
            if change.what not in SAID or not change.changed:
                continue
            if saved < max(self.share * peak, round(self.least_mib * MIB)):
                continue
            yield Finding(
                (_cleared(cleared) if change.what == "gradients" else None) or stepped,
                f"{SAID[change.what]}, the rehearsed peak drops by {amounts.size(saved)} "
                f"(from {amounts.size(peak)} to {amounts.size(change.peak_allocated)})",
                lost_bytes=saved,
                basis=machine.bytes_basis,
                facts=(
                    ("peak as it is", amounts.size(peak)),
                    ("peak with the change", amounts.size(change.peak_allocated)),
                    ("tensors changed", str(change.changed)),
                ),
                remedy=Remedy(REMEDIES[change.what]),
            )


def _unchanged(leaner: Rows[LeanerRow]) -> int:
    """Peak of the step as it is; 0 if it was too small to look. Raises :class:`NotLooked` if steps
    differ or too few ran.
    """
    same = [row.peak_allocated for row in leaner if not row.what]
    if not len(leaner):
        return 0
    if len(same) < 2:
        raise NotLooked("too few steps were rehearsed with the change")
    if max(same) - min(same) > SAME * max(same):
        raise NotLooked(
            "peak memory differs from step to step anyway, so a changed step cannot be compared"
        )
    return min(same)


def _cleared(rows: Rows[ZeroGradRow]) -> Site | None:
    sites = {row.site for row in rows}
    return sites.pop() if len(sites) == 1 else None


@dataclass(frozen=True)
class LargestBatchDoesNotFit(Rule):
    """The largest batch of an epoch does not fit on the device."""

    code = "MEM018"
    severity = Severity.ERROR
    since = "0.2"
    rehearsed = True
    advice = (
        "Limit what a batch holds: use a batch sampler that counts tokens, or a maximum length in "
        "the collate function. Until then start each epoch with its largest batch, so that it "
        "fails at once."
    )

    certain: float = knob(
        1.03,
        "Report only if the largest batch needs this share of the device's memory; the simulated "
        "allocator is right within 3 %.",
    )
    times: float = knob(
        2.0, "A note if it fits and needs this many times the peak of the audited steps."
    )
    least_mib: float = knob(16.0, "No note if it needs less than this many MiB more.")

    def detect(self, leaner: Rows[LeanerRow]) -> Iterator[Finding]:
        usual = max((row.peak_allocated for row in leaner if row.what != "largest"), default=0)
        for row in leaner:
            if row.what != "largest" or not row.changed:
                continue
            fits = row.peak_allocated < self.certain * row.capacity
            far = row.peak_allocated >= max(self.times * usual, usual + self.least_mib * MIB)
            if usual > row.capacity or (fits and not far):
                continue
            yield Finding(
                row.site,
                f"with the largest of an epoch's {amounts.count(row.changed, 'batch', 'batches')} the step "
                f"needs {amounts.size(row.peak_allocated)}"
                + ("" if fits else f", but the device has {amounts.size(row.capacity)}")
                + f"; the steps in this audit needed {amounts.size(usual)}",
                steps=1,
                per_step=1.0,
                severity=Severity.NOTE if fits else None,
                facts=(
                    ("peak of the audited steps", amounts.size(usual)),
                    ("peak with the largest batch", amounts.size(row.peak_allocated)),
                    ("device", amounts.size(row.capacity)),
                ),
            )


ABSOLUTE = Remedy("torch.cdist(x, y, p=1) computes the same sums without the differences.")


@dataclass(frozen=True)
class AllDifferences(Rule):
    """Pairwise distances are computed through a tensor of all differences."""

    code = "MEM016"
    severity = Severity.NOTE
    since = "0.1"
    advice = (
        "torch.cdist(x, y) computes the distances without the differences (squared: .pow(2)). Or "
        "combine squared norms with one matrix product: x2 + y2 - 2 * x @ y.mT, clamped at 0."
    )

    least: int = knob(1 << 20, "Report only tensors of differences of at least this many bytes.")

    def detect(self, differences: Rows[DifferencesRow]) -> Iterator[Finding]:
        for seen in together(differences, lambda row: (row.site.place, row.kind)):
            each, steps = max(seen, key=lambda row: row.bytes), len({row.step for row in seen})
            if each.bytes < self.least:
                continue
            kept = (
                ", and the graph keeps them for backward" if any(row.graph for row in seen) else ""
            )
            yield Finding(
                each.site,
                f"pairwise distances: this line creates {amounts.size(each.bytes)} of "
                f"differences, {each.size} numbers for each distance{kept}",
                steps=steps,
                per_step=len(seen) / steps,
                facts=(
                    ("differences", amounts.size(each.bytes)),
                    ("distances", amounts.size(each.bytes // each.size)),
                ),
                remedy=ABSOLUTE if each.kind == "absolute" else None,
            )
