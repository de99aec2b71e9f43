"""What is seen between looks, and what of it is off its course."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from statistics import median
from typing import Any

from auditor import amounts
from auditor.extensions.longrun.meter import Beats, Counters, counters

COUNTERS_S = 5.0
"""Between two readings of the counters."""

GROWTH_S = 60.0
"""Between two looks for growth: a Theil-Sen slope takes milliseconds."""


LOSSES = 10_000
"""That are kept of one beat."""


@dataclass(frozen=True)
class Told:
    """Something that somebody should know: its kind, one sentence, and its numbers."""

    kind: str
    what: str
    facts: dict[str, Any] = field(default_factory=dict)


class _Memory:
    """One kind of memory over the run."""

    def __init__(self, name: str, key: str) -> None:
        self.name, self.key = name, key
        self.course = Course(MEMORY)
        self.samples = Samples()
        self._times: deque[float] = deque(maxlen=MEMORY.window + MEMORY.last)
        self.known = False
        """Whether it was said that it grows."""

    def add(self, value: int, now: float) -> Told | None:
        self.samples.add(value, now)
        times = self._times
        times.append(now)
        departed = self.course.add(value)
        if departed is None:
            return None
        growth = _ramp(departed, tuple(times)[-len(departed.readings) :])
        if growth is not None:
            self.samples.was_told(growth)
            return self._growing(growth)
        self.samples.restart()
        self.known = False
        before, after = amounts.size(departed.before), amounts.size(departed.now)
        what = f"{self.name} memory went from {before} to {after}"
        return Told("memory", what, {"which": self.key, **_numbers(departed)})

    def resumed(self, added: float) -> None:
        """A look has ended, and left so many bytes more than there were."""
        self.samples.leave_out(added)
        self.course.restart()
        self._times.clear()

    def grown(self) -> Told | None:
        return self._growing(self.samples.grown())

    def _growing(self, growth: Growth | None) -> Told | None:
        if growth is None:
            return None
        verb, self.known = "still grows" if self.known else "grows", True
        what = (
            f"{self.name} memory {verb}: {amounts.size(growth.bytes)} in "
            f"{growth.seconds / 60:.3g} minutes ({amounts.size(growth.per_hour)} an hour)"
        )
        facts = {"which": self.key, "bytes": round(growth.bytes), "low": round(growth.low)}
        return Told("growth", what, {**facts, "seconds": round(growth.seconds)})


class Observer:
    """Step times, counters and losses of a run. Nothing in it waits for a device."""

    def __init__(self) -> None:
        self.beats = Beats()
        self._step_time = Course(STEP_TIME)
        self._loss = Course(LOSS)
        self._losses: list[float] = []
        self._unsound = self._sound = False
        self._host = _Memory("host", "host")
        self._device = _Memory("CUDA", "cuda")
        self._read_at = self._grown_at = -math.inf
        self._counters: Counters | None = None
        self._at = self._cpu = self._forced_off = 0.0
        self.typical_s = 0.0

    def step(self, now: float) -> bool:
        """A step has ended; whether :meth:`beat` is to be called."""
        return self.beats.step(now)

    def beat(self, now: float) -> list[Told]:
        """What has departed from its course since the last beat."""
        mean = self.beats.taken(now)
        self.typical_s = mean if not self.typical_s else 0.9 * self.typical_s + 0.1 * mean
        found = [self._slower(self._step_time.add(mean)), *self._heard()]
        if now - self._read_at >= COUNTERS_S:
            self._read_at = now
            found += self._read(now)
        return [each for each in found if each is not None]

    def logged(self, loss: float) -> Told | None:
        """The program's loss; the first one that is not finite, after a beat of finite ones, is told
        at once.
        """
        if math.isfinite(loss):
            if len(self._losses) < LOSSES:
                self._losses.append(loss)
            return None
        known, self._unsound, self._sound = self._unsound, True, False
        if known:
            return None
        return Told("loss", f"the logged loss is {loss}", {"now": str(loss)})

    def resumed(self, now: float) -> None:
        """A look has ended: what it took and holds is not the program's."""
        self.beats.restart(now)
        before, read = self._counters, counters()
        if before is not None:
            self._host.resumed((read.host or 0) - (before.host or 0))
            self._device.resumed((read.allocated or 0) - (before.allocated or 0))
        self._counters, self._at = read, now
        self._read_at = now

    def facts(self) -> dict[str, float | int | None]:
        """Numbers of the run so far: step times since it began, and memory as it was read last."""
        times, read = self.beats.times, self._counters
        return {
            "step_ms": round(1e3 * self.typical_s, 3),
            "step_ms_p50": round(1e3 * times.at(0.5), 3),
            "step_ms_p99": round(1e3 * times.at(0.99), 3),
            "host_bytes": read.host if read is not None else None,
            "cuda_allocated_bytes": read.allocated if read is not None else None,
            "cuda_reserved_bytes": read.reserved if read is not None else None,
            "cores": round(self._cpu, 2),
        }

    # -- readings ----------------------------------------------------------------------------------

    def _heard(self) -> list[Told | None]:
        losses, self._losses = self._losses, []
        if losses:
            self._unsound, self._sound = self._unsound and not self._sound, True
        departed = self._loss.add(sum(losses) / len(losses)) if losses else None
        if departed is None:
            return []
        what = f"the logged loss went from {departed.before:.4g} to {departed.now:.4g}"
        return [Told("loss", what, _numbers(departed))]

    def _slower(self, departed: Departure | None) -> Told | None:
        if departed is None:
            return None
        before, now = (amounts.duration(1e6 * each) for each in (departed.before, departed.now))
        machine = {"cores": round(self._cpu, 2), "forced_off_per_s": round(self._forced_off, 1)}
        facts = {**_numbers(departed), **machine}
        what = f"a step took {before}, and now takes {now} ({self._cpu:.1f} cores in use)"
        return Told("step time", what, facts)

    def _read(self, now: float) -> list[Told | None]:
        before, read = self._counters, counters()
        found: list[Told | None] = []
        if before is not None and now > self._at:
            self._cpu = (read.cpu_s - before.cpu_s) / (now - self._at)
            self._forced_off = (read.forced_off - before.forced_off) / (now - self._at)
            if read.retries > before.retries:
                what = "the caching allocator ran out of memory, and freed its cache or failed"
                found.append(Told("memory", what, {"which": "cuda", "retries": read.retries}))
        self._counters, self._at = read, now
        if read.host is not None:
            found.append(self._host.add(read.host, now))
        if read.allocated is not None:
            found.append(self._device.add(read.allocated, now))
        if now - self._grown_at >= GROWTH_S:
            self._grown_at = now
            found += [self._host.grown(), self._device.grown()]
        return found


def _numbers(departed: Departure) -> dict[str, float]:
    numbers = {"before": departed.before, "now": departed.now, "limit": departed.limit}
    return {name: float(f"{value:.6g}") for name, value in numbers.items()}


# -- course ----------------------------------------------------------------------------------------
# When a series departs from its course: by median and MAD of what came before, several times in a
# row of readings. The formulas and figures are told in docs/watch.md.


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
    readings: tuple[float, ...] = ()
    """All that it was told by, oldest first."""


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
        readings = tuple(values)
        self.restart()
        return Departure(before, median(off), limit, readings)

    def _limit(self) -> tuple[float, float]:
        asked = self.threshold
        reference = list(self._values)[: -asked.last]
        middle = median(reference)
        spread = SIGMA * median(abs(each - middle) for each in reference)
        least = max(asked.floor, asked.of_highest * self._highest)
        above = max(asked.deviations * spread, asked.share * abs(middle), least)
        return middle, middle + above


# -- growth ----------------------------------------------------------------------------------------
# Does memory grow over the run? Theil-Sen over samples that are thinned as the run goes on, so
# that they are few whatever its length.


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


JUMP = 0.5
"""Share of a rise that comes between two readings, from which it is a jump."""


def _ramp(departed: Departure, times: Sequence[float]) -> Growth | None:
    """The growth of a series that rose to its new level in many readings; None of one that jumped."""
    from auditor.evidence.recorded.trend import Trend

    readings = departed.readings
    low = max(at for at, each in enumerate(readings) if each <= departed.before)
    rising = readings[low:]
    rise = rising[-1] - rising[0]
    slope = Trend(rising).slope
    if slope is None or max(b - a for a, b in pairwise(rising)) >= JUMP * rise:
        return None
    return Growth(rise, times[-1] - times[low], max(0.0, slope.low) * (len(rising) - 1))


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

    def was_told(self, growth: Growth) -> None:
        """So much growth is known: it is told again when it has doubled."""
        self._told = growth.bytes

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
