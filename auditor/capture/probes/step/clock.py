"""Step times: host clock, device events, garbage collection and memory counters, no more."""

import gc
import threading
from time import perf_counter_ns, time_ns
from typing import Any, NamedTuple

import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.instruments.stack_sampler import KeptOpen
from auditor.capture.probes.base import Context
from auditor.model.devices import DeviceInfo
from auditor.recordings.schema.run import Counters, DeviceTimeRow, StepRow


def _mark(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """An event at the end of what is queued now; the host does not wait."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(stream)
    return event


def us_between(begin: Any, end: Any, *, wait: bool) -> float | None:
    """Time between two device events; None if the device has not come so far where the host shall
    not ``wait``, after an error of the device, and of events that went into a CUDA graph.
    """
    try:
        if wait:
            begin.synchronize()
            end.synchronize()
        elif not (begin.query() and end.query()):
            return None
        return float(begin.elapsed_time(end)) * 1e3
    except (RuntimeError, ValueError):
        return None


def allocator_counters() -> Counters:
    """Bytes and counts of the current device's allocator, as the ``steps`` part has them; they live
    on the host. Raises RuntimeError or KeyError if the allocator in use keeps none.
    """
    stats = torch.cuda.memory_stats_as_nested_dict()
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    return {
        "allocated": allocated["current"],
        "reserved": reserved["current"],
        "peak_allocated": allocated["peak"],
        "peak_reserved": reserved["peak"],
        "retries": stats["num_alloc_retries"],
        "ooms": stats["num_ooms"],
    }


def on_cuda(device: DeviceInfo) -> bool:
    """Whether torch's own code for what it calls CUDA runs: NVIDIA, ROCm, the null device."""
    return device.native and device.kind == "cuda"


class Clock:
    """Times steps and writes the ``steps`` part.

    With an accelerator a step's time is the time between device events recorded at its boundaries
    (no synchronisation is added inside the pass; events are read when it ends), else the host's
    ``perf_counter``. Counters are read outside the timed region.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._origin = perf_counter_ns()
        self._origin_unix_us = time_ns() / 1e3
        self._begun = Mark()
        self._gc_before_ns = 0
        self._compiles = 0
        self.own_us = 0.0
        """Host's time of the last step in us, without what it waited for a processor."""
        self._events: list[tuple[DeviceTimeRow, Any, Any]] = []
        self._event: Any = None
        self._stream: Any = None
        self._counted = True
        self._queued = RunQueue()

    def install(self) -> None:
        COLLECTOR.install()

    def uninstall(self) -> None:
        COLLECTOR.uninstall()
        self._context.freed.close()
        self._queued.close()

    def begin(self) -> None:
        """A step begins now."""
        self._context.freed.begin(self._context.pass_name)
        self._gc_before_ns = COLLECTOR.ns
        self._compiles = COMPILED_CODE.compiles
        if on_cuda(self._context.device):
            self._stream = torch.cuda.current_stream()
            self._event = _mark(self._stream)
        self._begun = self._queued.mark()

    def end(self) -> None:
        """The step ends now: write its row (with CUDA, device time comes at :meth:`settle`)."""
        host_us, queued_us = self._queued.since(self._begun)
        self.own_us = host_us - queued_us
        started_us = (self._begun.at_ns - self._origin) / 1e3
        counters = Counters()
        if on_cuda(self._context.device):
            # a step may leave another device current: events of two cannot be compared
            now = torch.cuda.current_stream()
            last = now if now.device == self._stream.device else self._stream
            end = _mark(last)
            timed = DeviceTimeRow(
                pass_name=self._context.pass_name, step=self._context.step, us=0.0
            )
            self._events.append((timed, self._event, end))
            counters = self._counters()
        elif self._context.shadow is not None:
            counters = self._context.shadow.memory.counters()
        row = StepRow(
            us=host_us,
            host_us=host_us,
            start_us=started_us,
            unix_us=self._origin_unix_us + started_us,
            gc_us=(COLLECTOR.ns - self._gc_before_ns) / 1e3,
            queued_us=queued_us,
            rss=self._context.freed.resident(),
            compiles=COMPILED_CODE.compiles - self._compiles,
            **counters,
        )
        self._context.freed.look()
        self._context.add(row)

    def settle(self) -> None:
        """End of a pass: read the device's events (waiting for the last) and write them."""
        self._context.freed.look()
        if not self._write_times(wait=True):
            self._context.warn(
                "the device timed only some of the steps: for the others the host's clock is used"
            )

    def abandon(self) -> None:
        """An error is on its way: write the times that are there."""
        self._write_times(wait=False)

    def _write_times(self, *, wait: bool) -> bool:
        """Write the times between the open events and forget these; True if all could be read."""
        events, self._events = self._events, []
        times = [us_between(begin, end, wait=wait) for _, begin, end in events]
        for (row, _, _), us in zip(events, times, strict=True):
            if us is not None:
                row.us = us
                self._context.writer.add(row)
        return None not in times

    def _counters(self) -> Counters:
        """Allocator counters; none where the allocator in use (a pluggable one) keeps none."""
        try:
            return allocator_counters() if self._counted else Counters()
        except (RuntimeError, KeyError) as error:
            self._counted = False
            self._context.warn(
                "device memory was not watched: the allocator keeps no counters "
                f"({type(error).__name__})"
            )
            return Counters()


class Collector:
    """What Python's garbage collector took in all, in ns."""

    def __init__(self) -> None:
        self.ns = 0
        self._begin = 0

    def install(self) -> None:
        gc.callbacks.append(self._on_gc)

    def uninstall(self) -> None:
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def _on_gc(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._begin = perf_counter_ns()
        else:
            self.ns += perf_counter_ns() - self._begin


COLLECTOR = Collector()


class Mark(NamedTuple):
    """A moment on a thread: ``perf_counter_ns``, the collector's time, :meth:`RunQueue.ns`."""

    at_ns: int = 0
    queued_ns: int = 0
    thread: int = 0
    gc_ns: int = 0


class RunQueue:
    """How long this thread was ready to run while something else had the processor.

    The kernel's own count (``/proc/<pid>/task/<tid>/schedstat``, second number;
    Documentation/scheduler/sched-stats.rst); reading it takes half a microsecond. Where there is
    none (not Linux, a kernel without schedstats) it stays 0.
    """

    def __init__(self) -> None:
        self._thread = 0
        self._file: KeptOpen | None = None

    def ns(self) -> int:
        """Total for the calling thread in ns; 0 if the kernel does not tell."""
        thread = threading.get_native_id()
        if thread != self._thread:
            self.close()
            self._thread, self._file = thread, KeptOpen(f"/proc/self/task/{thread}/schedstat")
        words = self._file.words() if self._file is not None else []
        return int(words[1]) if len(words) > 1 else 0

    def mark(self) -> Mark:
        """Now."""
        at_ns = perf_counter_ns()
        return Mark(at_ns, self.ns(), threading.get_native_id(), COLLECTOR.ns)

    def since(self, mark: Mark) -> tuple[float, float]:
        """Time since a mark in us, and how much of it the thread waited for a processor (0 to all
        of it).

        The clock is read first there and last here: a wait between the two readings is inside both
        or outside both, or the wait could be longer than the time. On another thread than the
        mark's nothing is known of it.
        """
        queued_ns = self.ns() - mark.queued_ns if threading.get_native_id() == mark.thread else 0
        ns = perf_counter_ns() - mark.at_ns
        return ns / 1e3, min(max(queued_ns, 0), ns) / 1e3

    def own_us(self, mark: Mark) -> float:
        """Time since a mark in us without what the thread waited for a processor."""
        us, queued_us = self.since(mark)
        return us - queued_us

    def uncollected_us(self, mark: Mark) -> float:
        """As ``us`` without garbage collection, which runs wherever the program is."""
        return max(0.0, self.own_us(mark) - (COLLECTOR.ns - mark.gc_ns) / 1e3)

    def close(self) -> None:
        """Close the file; the next reading opens it again."""
        if self._file is not None:
            self._file.close()
        self._thread, self._file = 0, None
