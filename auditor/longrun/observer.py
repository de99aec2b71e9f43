"""What is seen between looks, and what of it is off its course."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from auditor import amounts
from auditor.longrun.course import LOSS, MEMORY, STEP_TIME, Course, Departure
from auditor.longrun.growth import Samples
from auditor.longrun.meter import Beats, Counters, counters

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

    def add(self, value: int, now: float) -> Told | None:
        self.samples.add(value, now)
        departed = self.course.add(value)
        if departed is None:
            return None
        self.samples.restart()
        before, after = amounts.size(departed.before), amounts.size(departed.now)
        what = f"{self.name} memory went from {before} to {after}"
        return Told("memory", what, {"which": self.key, **_numbers(departed)})

    def resumed(self, added: float) -> None:
        """A look has ended, and left so many bytes more than there were."""
        self.samples.leave_out(added)
        self.course.restart()

    def grown(self) -> Told | None:
        growth = self.samples.grown()
        if growth is None:
            return None
        minutes = growth.seconds / 60
        what = (
            f"{self.name} memory grows: {amounts.size(growth.bytes)} in {minutes:,.0f} minutes "
            f"({amounts.size(growth.per_hour)} an hour)"
        )
        facts = {"which": self.key, "bytes": round(growth.bytes), "low": round(growth.low)}
        return Told("growth", what, {**facts, "seconds": round(growth.seconds)})


class Observer:
    """Step times, counters and losses of a run. Nothing in it waits for a device."""

    def __init__(self) -> None:
        self._beats = Beats()
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
        return self._beats.step(now)

    def beat(self, now: float) -> list[Told]:
        """What has departed from its course since the last beat."""
        mean = self._beats.taken(now)
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
        self._beats.restart(now)
        before, read = self._counters, counters()
        if before is not None:
            self._host.resumed((read.host or 0) - (before.host or 0))
            self._device.resumed((read.allocated or 0) - (before.allocated or 0))
        self._counters, self._at = read, now
        self._read_at = now

    def facts(self) -> dict[str, float | int | None]:
        """Numbers of the run so far: step times since it began, and memory as it was read last."""
        times, read = self._beats.times, self._counters
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
