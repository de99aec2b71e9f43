"""What is read between looks: the clock, and counters that cost microseconds. Bounded, whatever the
length of the run.
"""

from __future__ import annotations

import math
import sys
from array import array
from dataclasses import dataclass
from typing import Any

BEAT_S = 0.5
"""Step times are judged as means over so long, or over one step that is longer."""

GAMMA = math.log(1.02)
"""Quantiles of step times are within 1 %: buckets grow by 2 %."""

FASTEST_S, BUCKETS = 1e-6, 1200
"""From a microsecond to 5.8 hours."""


class Quantiles:
    """A histogram with buckets of equal ratio."""

    def __init__(self) -> None:
        self._counts = array("q", bytes(8 * BUCKETS))
        self.n = 0

    def add(self, seconds: float) -> None:
        """One more value."""
        at = int(math.log(max(seconds, FASTEST_S) / FASTEST_S) / GAMMA)
        self._counts[min(at, BUCKETS - 1)] += 1
        self.n += 1

    def at(self, share: float) -> float:
        """The value that this share of all is not above; 0 where there is none."""
        left = share * self.n
        for number, count in enumerate(self._counts):
            left -= count
            if count and left <= 0:
                return FASTEST_S * math.exp((number + 0.5) * GAMMA)
        return 0.0


class Beats:
    """Steps as they end, gathered until :data:`BEAT_S` have gone by."""

    def __init__(self) -> None:
        self.times = Quantiles()
        self._fresh: list[float] = []
        self._began = self._last = 0.0
        self._running = False

    def restart(self, now: float) -> None:
        """What went by until now was no step of the program's alone."""
        self._fresh.clear()
        self._began = self._last = now
        self._running = True

    def step(self, now: float) -> bool:
        """A step ended; whether a beat did."""
        if not self._running:
            self.restart(now)
            return False
        self.note(now)
        return now >= self.ends

    def note(self, now: float) -> None:
        """A step ended within the beat."""
        self._fresh.append(now - self._last)
        self._last = now

    @property
    def ends(self) -> float:
        """When the beat is over: with the first step after that."""
        return self._began + BEAT_S

    def taken(self, now: float) -> float:
        """The beat's mean step time; the next one begins."""
        mean = (now - self._began) / max(1, len(self._fresh))
        for each in self._fresh:
            self.times.add(each)
        self._fresh.clear()
        self._began = now
        return mean


@dataclass(frozen=True)
class Counters:
    """Memory in bytes (None: there is none, or it cannot be told), and what the process used of the
    machine since it began.
    """

    host: int | None
    allocated: int | None = None
    reserved: int | None = None
    retries: int = 0
    cpu_s: float = 0.0
    forced_off: int = 0


def counters() -> Counters:
    """As they stand now: 30 us, and where torch.cuda is in use its counters."""
    import time

    stats = _cuda()
    return Counters(
        host_bytes(),
        stats.get("allocated_bytes.all.current"),
        stats.get("reserved_bytes.all.current"),
        stats.get("num_alloc_retries", 0) + stats.get("num_ooms", 0),
        time.process_time(),
        _forced_off(),
    )


def _cuda() -> dict[str, Any]:
    """Counters of the caching allocator; they are the host's own, so that nothing waits for the
    device. Never the first to use it.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    found: dict[str, Any] = cuda.memory_stats()
    return found


def host_bytes() -> int | None:
    """The process' resident memory."""
    import psutil

    try:
        return int(psutil.Process().memory_info().rss)
    except psutil.Error:
        return None


def _forced_off() -> int:
    """How often another process took the core away (involuntary context switches)."""
    try:
        import resource
    except ImportError:  # not POSIX
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
