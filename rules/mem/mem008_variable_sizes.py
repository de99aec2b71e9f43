"""MEM008: sizes that vary from step to step make the allocator obtain memory again and again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.snapshot.file import SnapshotData, snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.segments import Origins, origins_of
from auditor.evidence.table import Evidence, Table
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import NotLooked, Rule, knob

from ..placing import places_of
from .varying_sizes import Varying, VaryingSizes

MIB = 2**20

OWN = 0.75
"""Share of the steps with a size of their own from which few meet one again."""

APART = 2.0
"""The largest size as a multiple of the smallest from which sizes lie far apart."""


@dataclass(frozen=True)
class VaryingSizesReallocate(Rule):
    """Sizes that vary from step to step are allocated anew."""

    code = "MEM008"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    share: float = knob(
        0.1, "Share of the reserved memory that came in the second half without need."
    )
    least_mib: float = knob(256.0, "The same in MiB.")
    times: int = knob(3, "New sizes that a line must have got from the device to be shown.")
    known: int = knob(
        3,
        "Sizes that it must have asked for before: one whose first half had one size has no "
        "varying input.",
    )

    sizes: int = knob(5, "Sizes among the steps from which they are many.")
    padded: int = knob(
        3,
        "The same where the source pads each batch to its own longest part, and nothing rounds "
        "that: the longest of a batch lie close together, and yet need blocks of their own.",
    )
    grid: int = knob(
        8, "Sizes of a grid that holds all of them up to which they are few (rounded lengths)."
    )
    late: int = knob(3, "Sizes that the second half of the steps must have: a warm-up ends.")
    spread: float = knob(1.1, "The largest size as a multiple of the smallest.")
    small_share: float = knob(
        0.2, "Share of the reserved memory that nothing needs, of a small program that is enlarged."
    )

    wide_share: float = knob(
        0.05,
        "The same where three quarters of the steps have a size of their own, the largest twice "
        "the smallest, and expandable segments would reserve `small_share` less.",
    )

    def detect(
        self, growth: LateGrowth, varying: VaryingSizes, machine: Machine
    ) -> Iterator[Finding]:
        found = varying.varying
        if found is not None and self._many(found):
            yield self._told(found, varying.steps)
            return
        wasted = growth.wasted_bytes
        if wasted < self.least_mib * MIB or wasted < self.share * growth.peak_reserved:
            return
        for line in growth.lines:
            if len(set(line.new)) < self.times or len(line.known) < self.known:
                continue
            yield Finding(
                line.site,
                f"{len(line.new)} sizes from {amounts.size(line.new[0])} to "
                f"{amounts.size(line.new[-1])} were newly allocated here while "
                f"shorter blocks lay free: the allocator holds {amounts.size(wasted)} more than "
                "the tensors needed more",
                lost_bytes=wasted,
                basis=machine.bytes_basis,
                seen_on="snapshot",
                facts=(
                    ("reserved rose by", amounts.size(growth.reserved)),
                    ("allocated rose by", amounts.size(growth.allocated)),
                    ("sizes before", f"{len(line.known)}, up to {amounts.size(line.known[-1])}"),
                ),
            )

    def _many(self, found: Varying) -> bool:
        """Whether the sizes are many, differ, and cost."""
        scaled = found.outcomes.scale != 1.0
        least = self.share
        if scaled:
            least = self.wide_share if self._wide(found) else self.small_share
        if found.grows or found.outcomes.share < least:
            return False
        if found.unrounded and found.distinct >= self.padded and found.late > 1:
            return found.outcomes.share >= self.small_share
        return (
            found.distinct >= self.sizes
            and found.late >= self.late
            and found.grid > self.grid
            and found.spread >= self.spread
        )

    def _wide(self, found: Varying) -> bool:
        """Few steps meet a size again, and the sizes lie far apart: a longer run meets more."""
        came = found.outcomes
        apart = found.spread >= APART and found.distinct >= OWN * len(found.sizes)
        return apart and came.reserved - came.expandable >= self.small_share * came.reserved

    def _told(self, found: Varying, steps: int) -> Finding:
        came, size = found.outcomes, amounts.size
        scaled = came.scale != 1.0
        where = f"enlarged to {size(came.peak)} these steps" if scaled else "they"
        line = f"{found.site.file}:{found.site.line}"
        moved = f" ({line} moves them to the device)" if found.made_at else ""
        return Finding(
            found.made_at or found.site,
            f"each step has its own sizes from here on, {found.distinct} from "
            f"{size(min(found.sizes))} to {size(max(found.sizes))} in {steps} steps{moved}: {where} "
            f"reserve {size(came.reserved)}, with one size {size(came.fixed)}",
            steps=steps,
            per_step=1.0,
            lost_bytes=None if scaled else came.extra,
            basis="none" if scaled else "estimated",
            severity=Severity.NOTE if scaled else None,
            places=places_of(found.made_at, found.site),
            facts=(
                ("first on the device", line),
                *([("enlarged", f"{came.scale:.0f} times")] if scaled else []),
                ("needed by tensors", size(came.peak)),
                ("reserved, as it is", size(came.reserved)),
                ("with the largest size in each step", size(came.fixed)),
                ("with four sizes", size(came.bucketed)),
                ("with expandable_segments:True", size(came.expandable)),
            ),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Pad batches to a few lengths, run the longest once before the loop, or write into a "
            "buffer that is allocated once; expandable_segments:True lets blocks grow instead.",
            config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        )


# -- late growth -----------------------------------------------------------------------------------
# Memory that the allocator had to obtain late, for sizes it had not met before, while older blocks
# lay free.


SMALL = 1 << 20
"""Requests up to here come from 2 MiB segments: torch's kSmallSize."""


@dataclass(frozen=True)
class NewSizes:
    """A line that asked for new sizes in the second half of the history, each with a cudaMalloc
    although enough was free.

    ``known`` are the sizes that it had asked for in the first half, ``new`` those that were
    obtained; in bytes, sorted.
    """

    site: Site
    known: tuple[int, ...]
    new: tuple[int, ...]


@dataclass(frozen=True)
class LateGrowth(Table):
    """Growth of one device's memory in the second half of the history, in bytes.

    ``reserved`` and ``allocated`` are by how much their highest values rose there. A program that
    really needs more raises both; one whose sizes vary raises the first.
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    reserved: int = 0
    allocated: int = 0
    peak_reserved: int = 0
    lines: tuple[NewSizes, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> LateGrowth:
        """From the history of the device with most memory. Raises :class:`NotLooked` without
        one.
        """
        data, course = snapshot_of(evidence), evidence.get(Allocations).devices[0]
        try:
            lines = _lines(data, course, origins_of(evidence))
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise NotLooked(
                f"the snapshot's history has another layout than torch's: {type(error).__name__}"
            ) from None
        reserved = _rise(course.start_reserved, course.reserved)
        return cls(
            reserved, _rise(course.start_allocated, course.allocated), course.peak_reserved, lines
        )

    @property
    def wasted_bytes(self) -> int:
        """Reserved in the second half without need."""
        return max(0, self.reserved - self.allocated)


def _rise(start: int, column: Sequence[int]) -> int:
    """By how much the second half of a history exceeds all that came before it."""
    middle = len(column) // 2
    first, second = max(column[:middle], default=0), max(column[middle:])
    return max(0, second - max(start, first))


def _lines(data: SnapshotData, course: Course, origins: Origins) -> tuple[NewSizes, ...]:
    trace, middle = data.trace(course.device), len(course.reserved) // 2
    known: dict[Site, set[int]] = defaultdict(set)
    new: dict[Site, list[int]] = defaultdict(list)
    for index, event in enumerate(trace):
        size = int(event["size"])
        if event["action"] != "alloc" or size <= SMALL:
            continue
        site = origins.site(event.get("frames") or ())
        if site is None:
            continue
        if index < middle:
            known[site].add(size)
        elif (
            size not in known[site]
            and trace[index - 1]["action"] == "segment_alloc"
            and _was_free(course, index - 2) >= size
        ):
            new[site].append(size)
    return tuple(
        NewSizes(site, tuple(sorted(known[site])), tuple(sorted(sizes)))
        for site, sizes in new.items()
    )


def _was_free(course: Course, index: int) -> int:
    return course.reserved[index] - course.active[index] if index >= 0 else 0
