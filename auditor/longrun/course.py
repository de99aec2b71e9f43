"""When a series departs from its course: by median and MAD of what came before, several times in a
row of readings. The formulas and figures are told in docs/watch.md.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import isfinite
from statistics import median

SIGMA = 1.4826
"""MAD times this is the standard deviation of normal values."""


@dataclass(frozen=True)
class Threshold:
    """A reading is off its course if it is above ``median + max(deviations * 1.4826 * MAD, share *
    median, floor, of_highest * highest reading of the run)`` of the ``window`` readings before the
    ``last`` ones, of which there must be ``least``. The series has departed if ``needed`` of the ``last`` readings are.
    """

    deviations: float
    share: float
    floor: float = 0.0
    of_highest: float = 0.0
    window: int = 120
    least: int = 40
    last: int = 10
    needed: int = 8


STEP_TIME = Threshold(deviations=5.0, share=0.2)
"""Of beats: the mean step time of half a second, or of one step that is longer."""

MEMORY = Threshold(deviations=6.0, share=0.1, floor=256 << 20, least=24, last=3, needed=3)
"""Of readings five seconds apart."""

LOSS = Threshold(deviations=8.0, share=0.1, of_highest=1e-3)
"""Of the means of what was logged in each beat. What a loss that has come down to nothing does
there is no news.
"""


@dataclass(frozen=True)
class Departure:
    """What a series did before, and what it does now (the median of the readings that are off)."""

    before: float
    now: float
    limit: float


class Course:
    """One series. Begins anew after a departure: the new level is the next reference."""

    def __init__(self, threshold: Threshold) -> None:
        self.threshold = threshold
        self._values: deque[float] = deque(maxlen=threshold.window + threshold.last)
        self._highest = 0.0

    def restart(self) -> None:
        """Forget what was."""
        self._values.clear()

    def add(self, value: float) -> Departure | None:
        """One more reading; what it completes."""
        asked, values = self.threshold, self._values
        values.append(value)
        self._highest = max(self._highest, abs(value)) if isfinite(value) else self._highest
        if len(values) < asked.least + asked.last:
            return None
        recent = list(values)[-asked.last :]
        before, limit = self._limit()
        off = [each for each in recent if each > limit]
        if len(off) < asked.needed:
            return None
        self.restart()
        return Departure(before, median(off), limit)

    def _limit(self) -> tuple[float, float]:
        asked = self.threshold
        reference = list(self._values)[: -asked.last]
        middle = median(reference)
        spread = SIGMA * median(abs(each - middle) for each in reference)
        least = max(asked.floor, asked.of_highest * self._highest)
        above = max(asked.deviations * spread, asked.share * abs(middle), least)
        return middle, middle + above
