"""MEM006: who holds the memory at its peak."""

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
from auditor.evidence.table import Evidence, Table
from auditor.model import Finding, Severity
from auditor.rule import NotLooked, Rule, knob

MIB = 2**20


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
    lines: int = knob(10, "Lines shown.")

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
                    *(holder.row for holder in each.holders[: self.lines]),
                    ("stack of the largest block", " < ".join(first.stack)),
                ),
            )


# -- peak ------------------------------------------------------------------------------------------
# Who held the memory at its peak: live blocks then, by the line that allocated them.


@dataclass(frozen=True)
class Peak:
    """The peak of one device in bytes, the largest holder first. Without a history it is the moment
    of the snapshot.
    """

    device: int
    allocated: int
    reserved: int
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
        """From the recording's snapshot. Raises :class:`NotLooked` where neither a history nor a
        stack was recorded.
        """
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
        reserved, allocated = (
            sum(state.segments.values()),
            sum(block.size for block in state.blocks),
        )
        return Peak(
            device, allocated, reserved, by_line(state.blocks, origins, timed=False), timed=False
        )
    at = course.peak if course.allocated[course.peak] >= course.start_allocated else -1
    blocks = state_after(data, device, at).blocks
    return Peak(
        device,
        course.peak_allocated,
        course.reserved_at_peak,
        by_line(blocks, origins),
        timed=True,
        categories=by_category(blocks, data.trace(device), max(at, 0), course.time_us, owners),
    )
