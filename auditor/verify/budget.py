"""The time that a verification may take: how long its runs are, and how many more of them fit."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable

from auditor.verify.trials import Measured

RECENT = 3
"""Runs whose longest is what the next one is expected to take: on a shared machine the load comes and goes."""

Lengths = dict[bool, deque[float]]


class Budget:
    """``seconds`` to spend from now on, by the clock ``now`` (s).

    A run that was begun is not cut off; so the whole may take longer by as much as its last run is slower than those before.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic, lengths: Lengths | None = None) -> None:
        self.seconds = seconds
        self._now = now
        self._began = now()
        self._lengths = lengths if lengths is not None else {kind: deque(maxlen=RECENT) for kind in (False, True)}

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return self._now() - self._began

    def part(self, share: float) -> Budget:
        """A share of what is left, from now on; it knows how long runs take, and what it learns of that is known here, too."""
        return Budget(max(0.0, self.seconds - self.spent) * share, self._now, self._lengths)

    def measured(self, run: Callable[[], Measured], *, rehearsed: bool = False) -> Measured:
        """Make a run, and remember how long it took with all that belongs to it. In the rehearsal runs are longer or shorter."""
        began = self._now()
        measured = run()
        self._lengths[rehearsed].append(self._now() - began)
        return measured

    def length(self, *, rehearsed: bool = False) -> float | None:
        """Seconds that a run is expected to take; None before the first."""
        return max(self._lengths[rehearsed] or self._lengths[not rehearsed], default=None)

    def fitting(self, *, rehearsed: bool = False) -> int:
        """How many more runs can end in time. Before anything is known of their length: any number, if there is time at all."""
        left, length = self.seconds - self.spent, self.length(rehearsed=rehearsed)
        if left <= 0.0:
            return 0
        return sys.maxsize if length is None else int(left / max(length, 1e-3))
