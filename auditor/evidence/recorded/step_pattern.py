"""On which steps something happened: on all of them, at intervals, now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FEWEST_STEPS = 3
"""Below this many audited steps nothing is claimed about a pattern."""


@dataclass(frozen=True)
class StepPattern:
    """``seen`` are the steps it was seen on, ascending and each once; ``of`` is how many steps were
    watched.
    """

    seen: tuple[int, ...]
    of: int

    def __str__(self) -> str:
        return f"{len(self.seen)} of {self.of} steps" if self.of != 1 else "the only step"

    @property
    def share(self) -> float:
        """Share of the watched steps."""
        return len(self.seen) / self.of if self.of else 0.0

    @property
    def interval(self) -> int | None:
        """The constant distance between sightings in steps; None if it varies or cannot be told."""
        gaps = {after - before for before, after in zip(self.seen, self.seen[1:], strict=False)}
        return gaps.pop() if len(gaps) == 1 else None

    def usual(self, share: float) -> bool:
        """True if it was seen on at least ``share`` of enough steps."""
        return self.of >= FEWEST_STEPS and self.share >= share

    def weight(
        self, *, usual: float, rare: float, interval: int, enough: int
    ) -> Literal["usual", "sometimes"] | None:
        """How often it happens, as far as it can be told; None where it is rare, rate-limited or
        unclear.

        ``usual``: on at least this share of the steps. ``sometimes``: on at least ``rare`` of them,
        or every 2nd to ``interval - 1``-th step. With fewer than ``enough`` steps only *on every
        step* can be told.
        """
        if self.of < enough:
            return "usual" if self.usual(1.0) else None
        gap = self.interval
        if self.share < rare or len(self.seen) == 1:
            return None
        if gap is not None and gap > 1:
            return "sometimes" if gap < interval else None
        return "usual" if self.share >= usual else "sometimes"


def step_pattern(seen: set[int], of: int) -> StepPattern:
    """The pattern from the step numbers of one pass; numbers of steps that did not complete are left
    out.
    """
    return StepPattern(tuple(sorted(step for step in seen if step < of)), of)
