"""Does memory grow over the run? Theil-Sen over samples that are thinned as the run goes on, so
that they are few whatever its length.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

KEPT = 100
"""Samples of a run at most: each second one is dropped when there are so many."""

FEWEST = 40
LEAST_SPAN_S = 300.0
"""Nothing is said of fewer samples, or of a shorter time."""

LEAST_BYTES, LEAST_SHARE = 64 << 20, 0.05
"""Growth from which it is told: both."""

STEADY = 0.2
"""Share of the growth that falls in the last third at least (1/3 is steady; near 0 it has levelled
off).
"""


@dataclass(frozen=True)
class Growth:
    """Bytes by which a series grew in ``seconds``, by its median slope and that of Sen's interval's
    lower end.
    """

    bytes: float
    seconds: float
    low: float

    @property
    def per_hour(self) -> float:
        """Bytes an hour."""
        return 3600 * self.bytes / self.seconds


class Samples:
    """A series of bytes over a run, and what was told of it."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self.restart()

    def restart(self) -> None:
        """A jump is no growth: begin behind it."""
        self._values.clear()
        self._stride, self._seen = 1, 0
        self._began = self._last = self._told = self._apart = 0.0

    def leave_out(self, much: float) -> None:
        """What a look of ours added is none of the program's."""
        self._apart += max(0.0, much)

    def add(self, value: float, now: float) -> None:
        """A reading, the same time after the one before as that after its own."""
        if self._seen % self._stride == 0:
            if not self._values:
                self._began = now
            self._values.append(value - self._apart)
            self._last = now
        self._seen += 1
        if len(self._values) >= KEPT:
            del self._values[1::2]
            self._stride *= 2

    def grown(self) -> Growth | None:
        """How it grows; None where it does not, cannot be told, or was told and has not doubled."""
        from auditor.evidence.recorded.trend import Trend

        seconds = self._last - self._began
        if len(self._values) < FEWEST or seconds < LEAST_SPAN_S:
            return None
        trend = Trend(tuple(self._values))
        slope, steps = trend.slope, len(self._values) - 1
        if slope is None or slope.low <= 0 or trend.last_third < STEADY or not self._risen:
            return None
        grown = slope.per_step * steps
        least = max(LEAST_BYTES, LEAST_SHARE * self._values[0], 2 * self._told)
        if grown < least:
            return None
        self._told = grown
        return Growth(grown, seconds, slope.low * steps)

    @property
    def _risen(self) -> bool:
        """Whether the lowest of the last third is above the middle of the first: not so where memory
        comes and goes.
        """
        third = len(self._values) // 3
        return min(self._values[-third:]) > median(self._values[:third])
