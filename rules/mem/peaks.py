"""MEM006, 14 to 16, 18 and 20: lines that hold the peak, changes that move it, memory run out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.snapshot.file import snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.state_at import (
    Category,
    Holder,
    Owners,
    by_category,
    by_line,
    origins_of,
    state_after,
)
from auditor.evidence.snapshot.what_if import OutOfMemory
from auditor.evidence.source.call_arguments import PLACES, Home, allocator_home
from auditor.evidence.source.config_values import Configs
from auditor.evidence.table import Evidence, Rows, Table, together
from auditor.model import Finding, Remedy, Severity, Site
from auditor.recordings.schema.graph import ZeroGradRow
from auditor.rule import NotLooked, Rule, knob

from .rows import DifferencesRow, HooksRow, LeanerRow

MIB = 2**20
LINES = 10
"""Lines that are reported, those that hold most memory."""

WHY = {
    "demand": "the tensors in use fill the memory; this is real demand, not fragmentation",
    "fragmentation": "enough memory was free, but only in pieces that are too small (fragmentation)",
    "elsewhere": "enough memory was free in one piece, but in a pool or on a "
    "stream that this request could not use",
    "unknown": "the size of the request is not known",
}


@dataclass(frozen=True)
class HooksPileUp(Rule):
    """Steps register hooks that nothing removes."""

    code = "MEM020"
    severity = Severity.WARNING
    since = "0.3"
    advice = (
        "Call remove() on each handle when the call that needed it is over, or register them once, "
        "before the loop."
    )

    fewest: int = knob(
        3, "Report only a line that left hooks on a module in at least this many steps."
    )

    def detect(self, hooks: Rows[HooksRow]) -> Iterator[Finding]:
        for row in hooks:
            if row.steps >= self.fewest:
                yield Finding(
                    row.site,
                    f"hooks that this line registers are never removed: {amounts.count(row.n, 'hook')} "
                    f"of {row.steps} steps are left, each forward or backward runs all of them, and "
                    "they keep alive what they reference",
                    steps=row.steps,
                    per_step=row.n / (row.all or row.steps),
                )


class RanOutOfMemory(Rule):
    """The program ran out of device memory."""

    code = "MEM015"
    severity = Severity.ERROR
    since = "0.1"
    rehearsed = True

    def detect(self, oom: OutOfMemory, machine: Machine, configs: Configs) -> Iterator[Finding]:
        if not oom.happened:
            return
        asked = (
            f"{amounts.size(oom.requested)} were requested"
            if oom.requested is not None
            else "a request failed"
        )
        if self._by_segment(oom):
            asked += (
                " (the allocator asks the device for a segment of "
                f"{amounts.size(oom.tried or 0)} to hold it)"
            )
        first = next((holder for holder in oom.holders if holder.site is not None), None)
        held = (
            f"; most is held by tensors created at {first.site} ({amounts.size(first.size)})"
            if first is not None
            else ""
        )
        where = "in the rehearsal memory" if machine.simulated else "memory"
        fitting = [each.setting for each in oom.what_ifs if not each.ooms]
        yield Finding(
            oom.site,
            f"{where} ran out: {asked}, {amounts.size(oom.live)} of {amounts.size(oom.reserved)} "
            f"reserved on GPU {oom.device} were in use and the largest free piece was "
            f"{amounts.size(oom.largest_free)}: {WHY[oom.kind]}{held}",
            basis=machine.bytes_basis,
            seen_on="snapshot",
            facts=(
                *self._figures(oom),
                *(holder.row for holder in oom.holders[:LINES]),
                *self._replays(oom),
            ),
            remedy=_remedy(oom.kind, fitting, allocator_home(configs)),
        )

    @staticmethod
    def _by_segment(oom: OutOfMemory) -> bool:
        """Whether torch's message names another size: that of the segment, not of the request."""
        return (
            oom.requested is not None
            and oom.tried is not None
            and amounts.size(oom.tried) != amounts.size(oom.requested)
        )

    def _figures(self, oom: OutOfMemory) -> Iterator[tuple[str, str]]:
        if oom.requested is not None:
            yield "requested", amounts.size(oom.requested)
        if self._by_segment(oom):
            yield (
                "segment to hold it",
                f"{amounts.size(oom.tried or 0)}, the size in torch's message",
            )
        yield "free inside reserved", amounts.size(oom.free_inside)
        yield "largest free piece", amounts.size(oom.largest_free)
        if oom.device_free is not None:
            yield "free on the device", amounts.size(oom.device_free)

    def _replays(self, oom: OutOfMemory) -> Iterator[tuple[str, str]]:
        yield from (each.row for each in oom.what_ifs)
        if oom.why_no_what_if:
            yield "other settings", oom.why_no_what_if


def _remedy(kind: str, fitting: list[str], home: Home | None) -> Remedy:
    """The first setting that fits, written where one is set now (``home``)."""
    if fitting:
        return Remedy(
            f"With PYTORCH_CUDA_ALLOC_CONF={fitting[0]} a replay of the same allocations fits; it cannot "
            "know what would have come after the error.",
            (home.edit(fitting[0], safe=True, reason=PLACES),) if home is not None else (),
            config={"PYTORCH_CUDA_ALLOC_CONF": fitting[0]},
        )
    return Remedy(
        "Hold less memory at this point: free what the largest holders keep, checkpoint "
        "activations, or use a smaller batch with gradient accumulation. No allocator setting "
        "makes room here."
        if kind == "demand"
        else "Look at the largest holders first; allocate long-lived tensors before short-lived ones."
    )


@dataclass(frozen=True)
class PeakHeldByFewLines(Rule):
    """A few lines hold most of the memory at its peak."""

    code = "MEM006"
    severity = Severity.NOTE
    since = "0.1"
    rehearsed = True
    native = True
    advice = (
        "To use less: apply activation checkpointing around the largest activations, use a smaller "
        "batch with gradient accumulation, or a fused function that never creates the tensor "
        "(scaled_dot_product_attention, cross_entropy)."
    )

    least_mib: float = knob(512.0, "Report only peaks of at least this many MiB.")
    share: float = knob(0.1, "Point at a line only if it holds at least this share of the peak.")

    def detect(self, peak: PeakHolders, machine: Machine) -> Iterator[Finding]:
        for each in peak.devices:
            first = next((holder for holder in each.holders if holder.site is not None), None)
            if (
                each.allocated < self.least_mib * MIB
                or first is None
                or first.size < self.share * each.allocated
            ):
                continue
            when = "at the peak" if each.timed else "when the snapshot was taken"
            yield Finding(
                first.site,
                f"{when} {amounts.size(each.allocated)} are allocated on GPU {each.device}; "
                f"tensors created here hold {amounts.size(first.size)} of that "
                f"({amounts.percent(first.size / each.allocated)})",
                basis=machine.bytes_basis,
                seen_on="snapshot",
                facts=(
                    *each.purposes,
                    *(holder.row for holder in each.holders[:LINES]),
                    ("stack of the largest block", " < ".join(first.stack)),
                ),
            )


# -- peak ------------------------------------------------------------------------------------------
# Who held the memory at its peak: live blocks then, by the line that allocated them.


@dataclass(frozen=True)
class Peak:
    """The peak of a device in bytes, largest holder first. Without a history: of the snapshot."""

    device: int
    allocated: int
    holders: tuple[Holder, ...]
    timed: bool
    categories: tuple[Category, ...] = ()
    """What the memory was for; known of recordings in which an optimizer stepped."""

    @property
    def purposes(self) -> tuple[tuple[str, str], ...]:
        """A row of facts for each category."""
        return tuple(
            (
                each.name,
                f"{amounts.size(each.size)} ({amounts.percent(each.size / self.allocated)})",
            )
            for each in self.categories
        )


@dataclass(frozen=True)
class PeakHolders(Table):
    """The peak of each device, that with most memory first."""

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    devices: tuple[Peak, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> PeakHolders:
        """From the snapshot. Raises :class:`NotLooked` if no history and no stack was recorded."""
        data = snapshot_of(evidence)
        try:
            courses = {course.device: course for course in evidence.get(Allocations).devices}
        except NotLooked:
            courses = {}
        owners = Owners(evidence)
        peaks = [_peak(evidence, courses.get(device), device, owners) for device in data.devices]
        told = [peak for peak in peaks if any(holder.site is not None for holder in peak.holders)]
        if peaks and not told:
            raise NotLooked("the snapshot names no lines: it was taken without allocation stacks")
        return cls(tuple(sorted(told, key=lambda peak: -peak.allocated)))


def _peak(evidence: Evidence, course: Course | None, device: int, owners: Owners) -> Peak:
    data, origins = snapshot_of(evidence), origins_of(evidence)
    if course is None:
        state = state_after(data, device, -1)
        allocated = sum(block.size for block in state.blocks)
        return Peak(device, allocated, by_line(state.blocks, origins, timed=False), timed=False)
    at = course.peak if course.allocated[course.peak] >= course.start_allocated else -1
    blocks = state_after(data, device, at).blocks
    return Peak(
        device,
        course.peak_allocated,
        by_line(blocks, origins),
        timed=True,
        categories=by_category(blocks, data.trace(device), max(at, 0), course.time_us, owners),
    )


SAID = {
    "gradients": "the gradients of the previous step stay allocated during the "
    "forward; if they are cleared right after optimizer.step()",
    "foreach": "the temporary tensors of the optimizer's foreach step set the peak; "
    "with foreach=False",
}
SAME = 0.01
"""By how much, as a share, unchanged steps' peaks may differ before a changed one says nothing."""

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
                remedy=Remedy(REMEDIES[change.what]),
            )


def _unchanged(leaner: Rows[LeanerRow]) -> int:
    """Peak of the step; 0 if it is too small. Raises :class:`NotLooked` if steps differ or lack."""
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
        1.03, "Report from this share of the device's memory on: the simulation errs by up to 3 %."
    )
    times: float = knob(2.0, "Report a note if it fits and needs at least this many audited peaks.")
    least_mib: float = knob(16.0, "Report no note if the batch needs less than this many MiB more.")

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
                remedy=ABSOLUTE if each.kind == "absolute" else None,
            )
