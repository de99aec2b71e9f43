"""The time that a verification may take: how long its runs are, and how many more of them fit."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from statistics import median

from auditor.extensions.verify.trials import Measured

RECENT = 3
"""Runs that say how long the next one takes: on a shared machine the load comes and goes."""

Lengths = dict[bool, deque[float]]


class Budget:
    """``seconds`` to spend from now on, by the clock ``now`` (s).

    A run that was begun is not cut off; so the whole may take longer by as much as its last run is
    slower than those before.
    """

    def __init__(
        self,
        seconds: float,
        now: Callable[[], float] = time.monotonic,
        lengths: Lengths | None = None,
    ) -> None:
        self.seconds = seconds
        self._now = now
        self._began = now()
        self._lengths = (
            lengths
            if lengths is not None
            else {kind: deque(maxlen=RECENT) for kind in (False, True)}
        )

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return self._now() - self._began

    def part(self, share: float) -> Budget:
        """A share of what is left, from now on; it knows how long runs take, and what it learns of
        that is known here, too.
        """
        return Budget(max(0.0, self.seconds - self.spent) * share, self._now, self._lengths)

    def measured(self, run: Callable[[], Measured], *, rehearsed: bool = False) -> Measured:
        """Make a run, and remember how long it took with all that belongs to it. In the rehearsal
        runs are longer or shorter.
        """
        began = self._now()
        measured = run()
        self._lengths[rehearsed].append(self._now() - began)
        return measured

    def length(self, *, rehearsed: bool = False) -> float | None:
        """Seconds that a run typically takes by now; None before the first."""
        recent = self._recent(rehearsed=rehearsed)
        return median(recent) if recent else None

    def planned(self) -> int:
        """How many more runs (not of the rehearsal) are likely to end in time: what rounds are
        planned by.
        """
        return self._room(self.length())

    def fits(self, runs: int, *, rehearsed: bool = False) -> bool:
        """True if so many more end in time, even if each takes as long as the longest of late: then
        they may begin.

        Before anything is known of their length, any number may, if there is time at all.
        """
        return self._room(max(self._recent(rehearsed=rehearsed), default=None)) >= runs

    def _recent(self, *, rehearsed: bool) -> deque[float]:
        return self._lengths[rehearsed] or self._lengths[not rehearsed]

    def _room(self, length: float | None) -> int:
        left = self.seconds - self.spent
        if left <= 0.0:
            return 0
        return sys.maxsize if length is None else int(left / max(length, 1e-3))
