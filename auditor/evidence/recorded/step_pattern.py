"""On which steps something happened: on all of them, at intervals, now and then, in phases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

from auditor.amounts import digits
from auditor.recordings.schema.sync import BURST

FEWEST_STEPS = 3
"""Below this many audited steps nothing is claimed about a pattern."""


@dataclass(frozen=True)
class StepPattern:
    """``seen`` are the steps it was seen on, ascending and each once; ``of`` is how many steps were
    watched. ``times`` says how often on each of them; empty: once, as far as is known.
    """

    seen: tuple[int, ...]
    of: int
    times: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{len(self.seen)} of {self.of} steps" if self.of != 1 else "the only step"

    @property
    def share(self) -> float:
        """Share of the watched steps."""
        return len(self.seen) / self.of if self.of else 0.0

    @property
    def interval(self) -> int | None:
        """The constant distance between sightings in steps; None if it varies or cannot be told."""
        gaps = {after - before for before, after in pairwise(self.seen)}
        return gaps.pop() if len(gaps) == 1 else None

    @cached_property
    def cycles(self) -> range:
        """The steps of whole cycles, where it comes in phases: in bursts some steps apart, at least
        twice, and still as often when the watching began and ended. Else no steps.
        """
        longest = max((after - before for before, after in pairwise(self.seen)), default=1)
        first, last = (self.seen[0], self.seen[-1]) if self.seen else (0, 0)
        goes_on = first < longest and self.of - last <= longest
        bursts = longest > 1 and min(self.times, default=0) >= BURST
        return range(first, last) if bursts and goes_on else range(0)

    def mean(self, amounts: Iterable[tuple[int, float]]) -> float:
        """What is known of single steps (number, amount) as an average of a step: over whole cycles
        where it comes in phases, else over all that were watched.
        """
        over = self.cycles or range(self.of)
        return sum(amount for step, amount in amounts if step in over) / max(1, len(over))

    @property
    def often(self) -> bool:
        """True if it comes in phases, in all as often as if it came once in each step."""
        return self.mean(zip(self.seen, self.times, strict=False)) >= 1.0 and bool(self.cycles)

    @property
    def burst(self) -> bool:
        """True if it was seen on one step alone, and then at least as often as if it came once in
        each step: after how many steps it comes again is not known.
        """
        return len(self.seen) == 1 and max(self.times, default=0) >= max(BURST, self.of)

    @property
    def phases(self) -> str:
        """How often it comes where it comes in phases, to follow a sentence; else empty."""
        if self.burst:
            first = " (the first of them: it may be set-up)" if self.seen == (0,) else ""
            return f"; {self.times[0]} times in that step{first}"
        if not self.often:
            return ""
        each = sum(self.times) / len(self.times)
        per_step = self.mean(zip(self.seen, self.times, strict=True))
        return f"; {digits(each)} times in each of those, {digits(per_step)} per step on average"

    def usual(self, share: float) -> bool:
        """Seen on at least ``share`` of enough steps, or comes in phases, and as often."""
        return self.of >= FEWEST_STEPS and (self.share >= share or self.often)

    def weight(
        self, *, usual: float, rare: float, interval: int, enough: int
    ) -> Literal["usual", "sometimes"] | None:
        """How often it happens, as far as it can be told; None where it is rare, rate-limited or
        unclear.

        ``usual``: on at least this share of the steps, or in phases and as often. ``sometimes``: on at least ``rare`` of them,
        or every 2nd to ``interval - 1``-th step, or in one burst. With fewer than ``enough`` steps only *on every
        step* can be told.
        """
        if self.of < enough:
            return "usual" if self.of >= FEWEST_STEPS and self.share == 1.0 else None
        if self.often or self.burst:
            return "usual" if self.often else "sometimes"
        gap = self.interval
        if self.share < rare or len(self.seen) == 1:
            return None
        if gap is not None and gap > 1:
            return "sometimes" if gap < interval else None
        return "usual" if self.share >= usual else "sometimes"


def step_pattern(seen: set[int], of: int) -> StepPattern:
    """The pattern from one pass's step numbers, without incomplete steps."""
    return StepPattern(tuple(sorted(step for step in seen if step < of)), of)


def counted_pattern(times: Iterable[tuple[int, int]], of: int) -> StepPattern:
    """The same from step numbers with how many times each; of several of one step their sum."""
    total: Counter[int] = Counter()
    for step, n in times:
        total[step] += n
    seen = step_pattern(set(total), of).seen
    return StepPattern(seen, of, tuple(total[step] for step in seen))
