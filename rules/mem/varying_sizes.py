"""Sizes that differ from step to step: which line makes them, and what other sizes or another
setting would have held, by replays of the recorded steps.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from math import gcd
from statistics import median_low
from typing import ClassVar

from auditor.allocator import AllocatorSettings, replay
from auditor.allocator.history import Call
from auditor.evidence.snapshot.file import snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.segments import origins_of
from auditor.evidence.snapshot.what_if import EVENT_LIMIT
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.recordings.schema.data import LoaderRow
from auditor.recordings.schema.run import StepRow
from auditor.rule import NotLooked

from .size_origin import Definitions, longest_of_batch, size_made_at

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
SORTED = 0.9
"""Rank correlation of sizes with the steps' numbers from which their order is meant (the longest
batch first): no other one is tried then.
"""
ORDERS = 2
"""Other orders of the same steps that are tried: a shuffled epoch has any, and an early long batch
hides what later ones need.
"""
ORDERS_LIMIT = 30_000
"""Events of a history up to which other orders are tried: each takes about 4 us for each event."""
FEW = 3
"""Sizes below which nothing is replayed: two in turn, or a last batch that is smaller."""
BUCKETS = 4
"""Sizes that a remedy would keep: each step's rounded up to the largest of its quarter."""
FOLLOWS = 0.7
"""Rank correlation of a line's size with all that varies in the step, from which it is taken for
the cause. Ours: counts of labels and boxes, which vary too, stay far below.
"""

Key = tuple[Site | None, int]
"""A line, and its how manieth allocation in the step."""
Sizes = Mapping[Key, int]


@dataclass(frozen=True)
class Outcomes:
    """What the allocator would have reserved at most, in bytes, with everything that the steps
    allocate ``scale`` times as large: as it was (the median over orders of the same steps), with
    the largest size in each step, with four sizes, and with ``expandable_segments``. ``peak``: what
    tensors needed at most. Calls of ``empty_cache`` are left out: they pay for the holes in time.
    """

    scale: float = 0.0
    peak: int = 0
    reserved: int = 0
    fixed: int = 0
    bucketed: int = 0
    expandable: int = 0

    @property
    def extra(self) -> int:
        """Bytes more than one size would have needed."""
        return max(0, self.reserved - self.fixed)

    @property
    def share(self) -> float:
        """The same as a share of what is reserved."""
        return self.extra / self.reserved if self.reserved else 0.0


@dataclass(frozen=True)
class Varying:
    """The line with which a step begins to have its own size. ``sizes`` in bytes, a step each;
    ``made_at`` is the line on the host that made the size, where ``site`` only copies it to the
    device.
    """

    site: Site
    sizes: tuple[int, ...]
    outcomes: Outcomes
    made_at: Site | None = None
    grows: bool = False
    """Larger in nearly each step, and held: growth, not sizes that vary."""
    unrounded: bool = False
    """The source takes the size from the longest part of each batch and rounds it to nothing."""

    @property
    def distinct(self) -> int:
        """How many sizes there were."""
        return len(set(self.sizes))

    @property
    def late(self) -> int:
        """How many there were in the second half of the steps: few where a warm-up has ended."""
        return len(set(self.sizes[len(self.sizes) // 2 :]))

    @property
    def spread(self) -> float:
        """The largest as a multiple of the smallest."""
        return max(self.sizes) / max(1, min(self.sizes))

    @property
    def grid(self) -> int:
        """How many sizes a grid has that holds all of them: few where lengths are rounded up to
        multiples of something.
        """
        sizes = sorted(set(self.sizes))
        unit = reduce(gcd, (after - before for before, after in pairwise(sizes)), 0)
        return (sizes[-1] - sizes[0]) // unit + 1 if unit else 1


@dataclass(frozen=True)
class VaryingSizes(Table):
    """The cause of sizes that vary among ``steps`` steps of one course; None where there is none,
    no history, or no times of steps.
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    steps: int = 0
    varying: Varying | None = None

    @classmethod
    def build(cls, evidence: Evidence) -> VaryingSizes:
        """From the history of the device with most memory."""
        try:
            course = evidence.get(Allocations).devices[0]
            if course.untrusted or len(course.reserved) > EVENT_LIMIT:
                return cls()
            steps = _Steps.of(evidence, course)
            return cls() if steps is None else cls(len(steps.sizes), _cause(evidence, steps))
        except (NotLooked, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
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
        """The course that most steps take; None where less than half and ``LEAST_STEPS`` do."""
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

    def replayed(
        self,
        size: Callable[[int, Key], int],
        scale: float,
        settings: AllocatorSettings | None = None,
    ) -> tuple[int, int]:
        """Most allocated and most reserved where a step's allocations have these sizes."""
        history = self.course.history
        calls = tuple(self._sized(call, size, scale) for call in history.calls)
        sized = replace(history, calls=calls)
        done = replay(sized, settings, fresh=True, empty_caches=False)
        return done.peak_allocated, done.peak_reserved

    def _sized(self, call: Call, size: Callable[[int, Key], int], scale: float) -> Call:
        known = self.at.get(call.at) if call.action == "alloc" else None
        return call if known is None else call._replace(size=round(size(*known) * scale))

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


def _cause(evidence: Evidence, steps: _Steps) -> Varying | None:
    """The first line of the step whose sizes vary and that the rest follows."""
    varied = [key for key in steps.sizes[0] if len({sizes[key] for sizes in steps.sizes}) > 1]
    total = [sum(sizes[key] for key in varied) for sizes in steps.sizes]
    for key in varied:
        sizes = [each[key] for each in steps.sizes]
        if key[0] is None or _rank_correlation(sizes, total) < FOLLOWS:
            continue
        source = evidence.get(Source)
        made_at = size_made_at(source, key[0], _loaders(evidence))
        return Varying(
            key[0],
            tuple(sizes),
            _outcomes(steps, key) if _worth(steps, sizes) else Outcomes(),
            made_at,
            _grows(sizes, steps.ends),
            made_at is not None and longest_of_batch(source, made_at),
        )
    return None


def _loaders(evidence: Evidence) -> Definitions | None:
    """What the loaders are made of that gave batches; None where none was noticed."""
    rows, relative = evidence.rows(LoaderRow), evidence.recording.relative
    if not rows:
        return None
    return Definitions(
        tuple(
            (relative(row.collate_file), row.collate_line or 0) for row in rows if row.collate_file
        ),
        tuple(
            (relative(row.dataset_file), row.dataset_line or 0) for row in rows if row.dataset_file
        ),
    )


def _worth(steps: _Steps, sizes: Sequence[int]) -> bool:
    """Whether a replay could tell anything."""
    return len(set(sizes)) >= FEW and steps.course.peak_allocated - steps.base >= LEAST_PEAK


def _grows(sizes: Sequence[int], ends: Sequence[int]) -> bool:
    rises = sum(after > before for before, after in pairwise(sizes))
    held = ends[-1] - ends[0]
    return rises >= 0.8 * (len(sizes) - 1) and 2 * held >= sizes[-1] - sizes[0]


def _outcomes(steps: _Steps, driver: Key) -> Outcomes:
    sizes, order, scale = steps.sizes, list(range(len(steps.sizes))), steps.scale
    shuffled = random.Random(0)  # noqa: S311 - the same orders each time
    orders = [tuple(order)]
    meant = abs(_rank_correlation([each[driver] for each in sizes], order)) >= SORTED
    for _ in range(ORDERS if not meant and len(steps.course.reserved) <= ORDERS_LIMIT else 0):
        shuffled.shuffle(order)
        orders.append(tuple(order))

    def in_order(
        order: Sequence[int], settings: AllocatorSettings | None = None
    ) -> tuple[int, int]:
        return steps.replayed(lambda step, key: sizes[order[step]][key], scale, settings)

    found = [(in_order(each), each) for each in orders]
    middle = median_low([reserved for (_, reserved), _ in found])
    peak, taken = next((peak, each) for (peak, reserved), each in found if reserved == middle)
    largest = {key: max(each[key] for each in sizes) for key in sizes[0]}
    bound = _bounds([each[driver] for each in sizes])
    expandable = replace(steps.course.history.settings, expandable_segments=True)
    return Outcomes(
        scale,
        peak,
        middle,
        steps.replayed(lambda _, key: largest[key], scale)[1],
        steps.replayed(lambda step, key: sizes[bound[taken[step]]][key], scale)[1],
        in_order(taken, expandable)[1],
    )


def _bounds(sizes: Sequence[int]) -> Mapping[int, int]:
    """Of each step the largest one of its quarter."""
    ranked = sorted(range(len(sizes)), key=sizes.__getitem__)
    each = -(-len(ranked) // BUCKETS)
    parts = [ranked[start : start + each] for start in range(0, len(ranked), each)]
    return {step: part[-1] for part in parts for step in part}


def _rank_correlation(one: Sequence[int], other: Sequence[int]) -> float:
    """Spearman's, with mean ranks for ties; 0 where one of them does not vary."""
    ranks = [_ranks(one), _ranks(other)]
    means = [sum(each) / len(each) for each in ranks]
    apart = [[rank - mean for rank in each] for each, mean in zip(ranks, means, strict=True)]
    norm = (sum(x * x for x in apart[0]) * sum(y * y for y in apart[1])) ** 0.5
    return sum(x * y for x, y in zip(*apart, strict=True)) / norm if norm else 0.0


def _ranks(values: Sequence[int]) -> list[float]:
    ordered = sorted(values)
    return [
        (bisect_left(ordered, value) + bisect_left(ordered, value + 1) - 1) / 2 for value in values
    ]
