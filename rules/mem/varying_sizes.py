"""Sizes that differ by step: which line makes them, and what others would have held."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from math import gcd
from statistics import correlation
from typing import ClassVar

from auditor import amounts
from auditor.allocator import replay
from auditor.allocator.replay import AllocatorCall
from auditor.evidence.snapshot.file import snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.state_at import origins_of
from auditor.evidence.snapshot.what_if import EVENT_LIMIT
from auditor.evidence.table import MALFORMED, Evidence, Table
from auditor.model import Finding, Remedy, Severity, Site
from auditor.recordings.schema.run import StepRow
from auditor.rule import NotLooked, Rule, knob

LEAST_STEPS = 6
"""Steps of one course that are compared at least: fewer cannot tell a few sizes from many."""
TYPICAL = 16 << 30
"""Bytes at the peak of a training that fills a usual card. At this size the allocator's units (2 and
20 MiB) are small beside the tensors, so that shares depend on the sizes' proportions alone.
"""
SMALL_PEAK = 1 << 30
"""A program below this peak is scaled: its whole step lies in a few of the allocator's 20 MiB
segments, which hides what the same code does at the size of a training.
"""
LEAST_PEAK = 1 << 20
"""Bytes that steps must have allocated at their peak: up to here torch takes requests from segments
of 2 MiB (kSmallSize), and a step that small says nothing of a larger one.
"""
FOLLOWS = 0.7
"""Rank correlation of a line's size with all that varies in the step, from which it is taken for
the cause. Ours: counts of labels and boxes, which vary too, stay far below.
"""

FEW = 3
"""Sizes below which nothing is replayed: two in turn, or a last batch that is smaller."""

GRID = 8
"""Sizes of a grid up to which they are few."""

Key = tuple[Site | None, int]
"""A line and the ordinal of its allocation in the step."""
Sizes = Mapping[Key, int]


@dataclass(frozen=True)
class Varying:
    """The line with which a step begins to have its own size on the device. ``sizes`` in bytes, a
    step each. ``reserved`` is what the allocator holds at most with everything that the steps allocate
    ``scale`` times as large, ``fixed`` the same with the largest size in each step. Calls of
    ``empty_cache`` are left out: they pay for the holes in time.
    """

    site: Site
    sizes: tuple[int, ...]
    grows: bool = False
    """Larger in nearly each step, and held: growth, not sizes that vary."""
    scale: float = 1.0
    reserved: int = 0
    fixed: int = 0

    @property
    def distinct(self) -> int:
        """How many sizes there were."""
        return len(set(self.sizes))

    @property
    def extra(self) -> int:
        """Bytes more than one size would have needed."""
        return max(0, self.reserved - self.fixed)

    def many(self, sizes: int, spread: float) -> bool:
        """So many sizes, also in the later half, and so far apart; not a few rounded lengths."""
        ordered = sorted(set(self.sizes))
        late = set(self.sizes[len(self.sizes) // 2 :])
        unit = reduce(gcd, (after - before for before, after in pairwise(ordered)), 0)
        grid = (ordered[-1] - ordered[0]) // unit + 1 if unit else 1
        apart = ordered[-1] >= spread * ordered[0]
        return apart and not self.grows and len(late) >= sizes and grid > GRID


@dataclass(frozen=True)
class VaryingSizes(Table):
    """Why sizes vary among ``steps`` steps; None without such, a history, or times of steps."""

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    steps: int = 0
    varying: Varying | None = None

    @classmethod
    def build(cls, evidence: Evidence) -> VaryingSizes:
        try:
            course = evidence.get(Allocations).devices[0]
            if course.untrusted or len(course.reserved) > EVENT_LIMIT:
                return cls()
            steps = _Steps.of(evidence, course)
            return cls() if steps is None else cls(len(steps.sizes), _cause(steps))
        except (NotLooked, *MALFORMED):
            return cls()


@dataclass(frozen=True)
class _Steps:
    """Steps that allocate at the same lines in the same order. ``at``: of an event, the step and
    the key; ``ends``: bytes in tensors at the end of each.
    """

    course: Course
    sizes: tuple[Sizes, ...]
    at: Mapping[int, tuple[int, Key]] = field(repr=False)
    ends: tuple[int, ...] = ()
    base: int = 0

    @classmethod
    def of(cls, evidence: Evidence, course: Course) -> _Steps | None:
        """The course that most steps take; None if less than half and ``LEAST_STEPS`` do."""
        begun = sorted({row.unix_us for row in evidence.rows(StepRow) if row.unix_us})
        if not course.time_us or not begun:
            return None
        events = [*(bisect_left(course.time_us, start) for start in begun), len(course.time_us)]
        spans = [(start, end) for start, end in pairwise(events) if start < end]
        keyed = [dict(_keyed(evidence, course, *span)) for span in spans]
        lines = [tuple(keys.values()) for keys in keyed]
        common, count = Counter(lines).most_common(1)[0]
        if count < max(LEAST_STEPS, len(spans) / 2):
            return None
        chosen = [index for index, line in enumerate(lines) if line == common]
        trace = snapshot_of(evidence).trace(course.device)
        sizes = tuple(
            {key: int(trace[event]["size"]) for event, key in keyed[index].items()}
            for index in chosen
        )
        at = {
            event: (step, key)
            for step, index in enumerate(chosen)
            for event, key in keyed[index].items()
        }
        ends = tuple(course.allocated[spans[index][1] - 1] for index in chosen)
        first = spans[chosen[0]][0]
        base = course.allocated[first - 1] if first else course.start_allocated
        return cls(course, sizes, at, ends, base)

    def reserved(self, size: Callable[[int, Key], int]) -> int:
        """Most that is reserved where a step's allocations have these sizes."""
        history = self.course.history
        calls = tuple(self._sized(call, size) for call in history.calls)
        sized = replace(history, calls=calls)
        return replay(sized, fresh=True, empty_caches=False).peak_reserved

    def _sized(self, call: AllocatorCall, size: Callable[[int, Key], int]) -> AllocatorCall:
        known = self.at.get(call.at) if call.action == "alloc" else None
        return call if known is None else call._replace(size=round(size(*known) * self.scale))

    @property
    def scale(self) -> float:
        """By how much a small program's steps are enlarged; 1 for others."""
        peak = self.course.peak_allocated
        if peak >= SMALL_PEAK or peak <= self.base:
            return 1.0
        return (TYPICAL - self.base) / (peak - self.base)


def _keyed(evidence: Evidence, course: Course, start: int, end: int) -> Iterator[tuple[int, Key]]:
    trace, origins = snapshot_of(evidence).trace(course.device), origins_of(evidence)
    seen: Counter[Site | None] = Counter()
    for index in range(start, end):
        if trace[index]["action"] == "alloc":
            site = origins.site(trace[index].get("frames") or ())
            yield index, (site, seen[site])
            seen[site] += 1


def _cause(steps: _Steps) -> Varying | None:
    """The first line of the step whose sizes vary and that the rest follows."""
    varied = [key for key in steps.sizes[0] if len({sizes[key] for sizes in steps.sizes}) > 1]
    total = [sum(sizes[key] for key in varied) for sizes in steps.sizes]
    for key in varied:
        sizes = [each[key] for each in steps.sizes]
        if key[0] is None or _rank_correlation(sizes, total) < FOLLOWS:
            continue
        found = Varying(key[0], tuple(sizes), _grows(sizes, steps.ends), steps.scale)
        few = len(set(sizes)) < FEW or steps.course.peak_allocated - steps.base < LEAST_PEAK
        return found if few else _replayed(found, steps)
    return None


def _replayed(found: Varying, steps: _Steps) -> Varying:
    sizes = steps.sizes
    largest = {key: max(each[key] for each in sizes) for key in sizes[0]}
    return replace(
        found,
        reserved=steps.reserved(lambda step, key: sizes[step][key]),
        fixed=steps.reserved(lambda _, key: largest[key]),
    )


def _grows(sizes: Sequence[int], ends: Sequence[int]) -> bool:
    rises = sum(after > before for before, after in pairwise(sizes))
    held = ends[-1] - ends[0]
    return rises >= 0.8 * (len(sizes) - 1) and 2 * held >= sizes[-1] - sizes[0]


def _rank_correlation(one: Sequence[int], other: Sequence[int]) -> float:
    """Spearman's, with mean ranks for ties; 0 if one of them does not vary."""
    varies = len(set(one)) > 1 and len(set(other)) > 1
    return correlation(_ranks(one), _ranks(other)) if varies else 0.0


def _ranks(values: Sequence[int]) -> list[float]:
    ordered = sorted(values)
    return [
        (bisect_left(ordered, value) + bisect_left(ordered, value + 1) - 1) / 2 for value in values
    ]


@dataclass(frozen=True)
class VaryingSizesReallocate(Rule):
    """Tensor sizes that change from step to step make the allocator reserve more memory."""

    code = "MEM008"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    sizes: int = knob(3, "Report only if the later half of the steps has at least this many sizes.")
    spread: float = knob(1.1, "Report only a largest size at least this multiple of the smallest.")
    share: float = knob(0.1, "Report only if one size saves at least this share of the memory.")

    def detect(self, varying: VaryingSizes) -> Iterator[Finding]:
        found = varying.varying
        if found is None or not found.many(self.sizes, self.spread):
            return
        if found.extra < self.share * found.reserved or not found.extra:
            return
        size, scaled = amounts.size, found.scale != 1.0
        who = (
            f"replayed with all sizes {found.scale:.0f} times as large, the steps"
            if scaled
            else "the allocator"
        )
        yield Finding(
            found.site,
            f"tensor sizes change from step to step from this line on ({found.distinct} sizes from "
            f"{size(min(found.sizes))} to {size(max(found.sizes))} in {varying.steps} steps): "
            f"{who} reserve{'s' * (not scaled)} {size(found.reserved)}; with one fixed size "
            f"{size(found.fixed)} would do",
            steps=varying.steps,
            per_step=1.0,
            lost_bytes=None if scaled else found.extra,
            basis="none" if scaled else "estimated",
            severity=Severity.NOTE if scaled else None,
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Pad batches to a few lengths, run the longest batch once before the loop, or write into a "
            "buffer allocated once. expandable_segments:True lets segments grow instead.",
            config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        )
