"""The evidence in one trace: each table is computed when first asked for, and kept."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

import numpy as np

from auditor.timeline import copies as copying
from auditor.timeline import frames
from auditor.timeline.composition import Composition, composition
from auditor.timeline.device import DeviceUse, Launches, devices, launch_delay_ns, launches
from auditor.timeline.frames import Place
from auditor.timeline.idle import Idle, doing, idle
from auditor.timeline.intervals import Intervals, union, without
from auditor.timeline.naming import STREAM_ORDERED, is_launch, is_step, mask, plain
from auditor.timeline.patterns import (
    Attention,
    IndexLoop,
    Siblings,
    attention,
    index_loops,
    siblings,
)
from auditor.timeline.phases import (
    AllocatorCalls,
    LoaderWaits,
    OptimizerUse,
    allocator_calls,
    loader_waits,
    loading,
    optimizer_use,
)
from auditor.timeline.pinned import Pageable, pageable
from auditor.timeline.precision import Products, products
from auditor.timeline.reading import read
from auditor.timeline.replay.schedule import Sources, schedule
from auditor.timeline.replay.what_if import Costs, Replays
from auditor.timeline.steps import Steps, steps
from auditor.timeline.totals import (
    AwkwardProducts,
    Casts,
    Communication,
    MemoryUse,
    Total,
    awkward_products,
    call_totals,
    casts,
    communication,
    kernel_totals,
    launching_operator,
    memory_use,
    operator_totals,
)
from auditor.timeline.trace import MEMSET, Codes, Ints, Trace
from auditor.timeline.tree import CallTree, call_tree
from auditor.timeline.waits import Waits, waits


class Timeline:
    """Evidence of a :class:`Trace`. Times in ns on the trace's clock. Devices are in order of work,
    the busiest first.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @classmethod
    def of(cls, path: Path | str) -> Timeline:
        """Read a file; raises what :func:`auditor.timeline.read` raises."""
        return cls(read(path))

    @cached_property
    def steps(self) -> Steps:
        """The training steps, and how they were found."""
        return steps(self.trace)

    @cached_property
    def _step_marks(self) -> Ints:
        return np.flatnonzero(mask(self.trace.names, self.trace.operators.name, is_step))

    @cached_property
    def tree(self) -> CallTree:
        """Which span ran inside which on the host."""
        return call_tree(self.trace.operators, self.trace.calls, self._step_marks)

    @cached_property
    def launches(self) -> Launches:
        """Which call launched which work."""
        return launches(self.trace)

    @cached_property
    def launch_delay_ns(self) -> Ints:
        """Time from launch to start, one value a kernel: how far the host ran ahead."""
        return launch_delay_ns(self.trace, self.launches)

    @cached_property
    def devices(self) -> tuple[DeviceUse, ...]:
        """Busy and idle time of each device."""
        return devices(self.trace)

    @cached_property
    def busy(self) -> Intervals:
        """The time in which any device worked."""
        return union(self.trace.work.start, self.trace.work.end)

    @cached_property
    def device_missing(self) -> bool:
        """Whether kernels were launched, or devices are listed, and yet no work of a device was
        recorded (CUPTI failed).
        """
        launched = mask(self.trace.names, self.trace.calls.name, is_launch).any()
        return not len(self.trace.work.start) and bool(launched or self.trace.info.devices)

    @cached_property
    def waits(self) -> Waits:
        """Where the host waited for a device, why, and what it cost."""
        return waits(self.trace, self.tree, self.launches, self.steps, self.devices)

    @cached_property
    def wait_places(self) -> list[Place | None]:
        """The user's code around each wait: its line where certain, else its function, None where
        the trace has no frames.
        """
        found = self.waits
        rough = frames.places(self.trace, self.trace.calls.thread[found.call], found.start)
        if len(self.trace.frames.start) or not (self.trace.operators.stack >= 0).any():
            return rough  # a torch that records frames builds its stacks from them: lines of def
        rows = self.tree.parent[found.call + self.tree.operators].tolist()
        return [
            frames.exact_place(self.trace, self.tree, row) or place
            for row, place in zip(rows, rough, strict=True)
        ]

    def places_of(self, rows: Ints) -> list[Place | None]:
        """The user's code around operators (rows of the tree): their line where certain, else the
        function, else None.
        """
        operators = self.trace.operators
        rough = frames.places(self.trace, operators.thread[rows], operators.start[rows])
        if len(self.trace.frames.start):
            return rough
        return [frames.exact_place(self.trace, self.tree, row) for row in rows.tolist()]

    @cached_property
    def copies(self) -> copying.Copies:
        """Every copy that a device made."""
        return copying.copies(self.trace, self.launches, self.steps)

    @cached_property
    def pageable(self) -> Pageable:
        """What copies lose because their memory is pageable."""
        return pageable(self.trace, self.launches, self.copies)

    @cached_property
    def loader(self) -> LoaderWaits | None:
        """Time without a batch; None where no loader was recorded."""
        return loader_waits(self.trace, self.steps)

    @cached_property
    def composition(self) -> Composition:
        """What each step's time was spent on."""
        return composition(
            self.trace,
            self.tree,
            self.steps,
            busy=self.busy,
            made=self.copies,
            slow=self.pageable.slow_ns,
            loader=self.loader,
            thread=self.step_thread,
        )

    @cached_property
    def optimizer(self) -> OptimizerUse | None:
        """What the optimizers did; None where none was recorded."""
        return optimizer_use(self.trace, self.tree, self.steps)

    @cached_property
    def allocator_calls(self) -> tuple[AllocatorCalls, ...]:
        """Calls that take memory from the driver or give it back."""
        return allocator_calls(self.trace, self.steps)

    @cached_property
    def idle(self) -> Idle | None:
        """Idle time of the device with the most work, and why; None where no device worked."""
        host = (self.loader, self.waits, self.driver_calls)
        return (
            idle(self.trace, self.devices, self.launches, self.steps, host)
            if self.devices
            else None
        )

    @cached_property
    def replays(self) -> Replays | None:
        """Replays of the steps (of the whole trace, where it marks none); None without work of a
        device that a call launched, or with work that has no length.
        """
        if not self.devices or self.trace.info.null_device:
            return None
        made = Sources(
            self.trace,
            self.tree,
            self.launches,
            self.waits,
            self.steps,
            self.driver_calls,
            self.main_thread,
        )
        plan = schedule(made)
        return Replays(plan, self._costs) if plan is not None else None

    @property
    def _costs(self) -> Costs:
        spans = self.trace.operators
        none = np.empty(0, np.int64)
        waited = loading(self.trace, self.loader, self.main_thread)
        stepping = self.optimizer.rows if self.optimizer is not None else none
        begin = dry = none
        if self.idle is not None:
            gaps = self.idle.of_host()
            begin, dry = self.idle.start[gaps], self.idle.dry[gaps]
        return Costs(
            self.trace,
            self.waits,
            self.copies,
            self.pageable,
            loading=waited,
            host_gaps=without(union(begin, begin + dry), waited),
            optimizer=union(spans.start[stepping], spans.end[stepping]),
            thread=self.main_thread,
        )

    @cached_property
    def driver_calls(self) -> Ints:
        """Calls (rows of ``trace.calls``) that take memory from the driver or give it back, and
        memsets that hold the host.
        """
        rows = [one.rows for one in self.allocator_calls if plain(one.api) not in STREAM_ORDERED]
        return np.unique(np.concatenate([*rows, self.waiting_memsets]))

    @cached_property
    def wait_prices(self) -> Ints:
        """For each host wait the idle time of the device that it cost, in ns, shared out with
        everything else that made it idle.
        """
        return (
            self.idle.of_waits
            if self.idle is not None
            else np.zeros(len(self.waits.call), np.int64)
        )

    def host_in(self, start: int, end: int, thread: int) -> str:
        """What a host thread was in for the greater part of a stretch of time; empty where the
        trace does not show it.
        """
        return doing(self.trace, (start, end), thread)

    @cached_property
    def communication(self) -> tuple[Communication, ...]:
        """Collectives of each device that has any."""
        return tuple(found for use in self.devices if (found := communication(self.trace, use)))

    @cached_property
    def products(self) -> dict[int, tuple[Products, ...]]:
        """Arithmetic of matrix products and convolutions, by device."""
        return {use.device: products(self.trace, use) for use in self.devices}

    @cached_property
    def memory(self) -> tuple[MemoryUse, ...]:
        """Memory events by device."""
        return memory_use(self.trace)

    def call_prices(self, rows: Ints) -> Ints:
        """What calls among :attr:`driver_calls` cost: the device's idle time while and because they
        held the host, in ns.
        """
        if self.idle is None:
            return np.zeros(len(rows), np.int64)
        result: Ints = self.idle.of_driver[np.searchsorted(self.idle.driver_calls, rows)]
        return result

    def functions_at(self, times: Ints, threads: Codes) -> list[Place | None]:
        """The user's innermost function at moments of a host thread, if the trace has frames."""
        return frames.places(self.trace, threads, times)

    @cached_property
    def longest_unknown(self) -> tuple[Place | None, str]:
        """The user's function in the longest stretch without events, and the innermost one of
        anybody's that holds it.
        """
        start, end = self.composition.longest_unknown
        times, thread = (
            np.array([(start + end) // 2], np.int64),
            np.array([self.main_thread], np.int32),
        )
        return self.functions_at(times, thread)[0], frames.around(
            self.trace, self.main_thread, start, end
        )

    @cached_property
    def step_thread(self) -> int:
        """The host thread that marks the steps, -1 where the profiler did not mark them."""
        threads = self.trace.operators.thread[self._step_marks]
        return int(np.bincount(threads).argmax()) if len(threads) else -1

    @cached_property
    def main_thread(self) -> int:
        """The same, else the busiest host thread."""
        threads = self.trace.operators.thread
        return (
            int(np.bincount(threads).argmax())
            if self.step_thread < 0 and len(threads)
            else self.step_thread
        )

    @cached_property
    def waiting_memsets(self) -> Ints:
        """Calls (rows of ``trace.calls``) of memsets that held the host until they were done."""
        return waiting_memsets(self.trace, self.launches, self.busy)

    @cached_property
    def launching_operator(self) -> Ints:
        """For each device work the row of the tree that launched it, -1 where not known."""
        return launching_operator(self.trace, self.tree, self.launches)

    @cached_property
    def launched_ns(self) -> Ints:
        """For each row of the tree the time of the device work that it launched itself."""
        launcher, work = self.launching_operator, self.trace.work
        known = launcher >= 0
        spent = np.bincount(
            launcher[known], weights=(work.end - work.start)[known], minlength=len(self.tree.name)
        )
        result: Ints = spent.astype(np.int64)
        return result

    @cached_property
    def casts(self) -> Casts:
        """Conversions between types on the device."""
        return casts(self.trace, self.tree, self.launching_operator)

    @cached_property
    def awkward_products(self) -> AwkwardProducts:
        """16-bit products whose sizes do not fit tensor cores."""
        return awkward_products(self.trace, self.launched_ns)

    @cached_property
    def attention(self) -> Attention:
        """Attention that runs in pieces."""
        return attention(self.trace, self.tree, self.launched_ns)

    @cached_property
    def siblings(self) -> Siblings:
        """Operators by parent, in order of time."""
        return siblings(self.trace, self.tree)

    @cached_property
    def index_loops(self) -> tuple[IndexLoop, ...]:
        """Loops over an index."""
        return index_loops(self.trace, self.tree, self.siblings)

    @cached_property
    def operators(self) -> tuple[Total, ...]:
        """Operators by name, with their own time on the host."""
        return operator_totals(self.trace, self.tree)

    @cached_property
    def kernels(self) -> tuple[Total, ...]:
        """Kernels by name."""
        return kernel_totals(self.trace)

    @cached_property
    def runtime_calls(self) -> tuple[Total, ...]:
        """Runtime and driver calls by name."""
        return call_totals(self.trace)

    @cached_property
    def operator_calls(self) -> dict[str, int]:
        """How often each operator and annotation ran, by name."""
        numbers = np.bincount(self.trace.operators.name)
        return {
            self.trace.names[code]: int(numbers[code]) for code in np.flatnonzero(numbers).tolist()
        }

    def compute(self) -> None:
        """Compute every table now (benchmarks, and processes that send a timeline on)."""
        for name, member in vars(type(self)).items():
            if isinstance(member, cached_property):
                getattr(self, name)


# -- memsets ---------------------------------------------------------------------------------------
# Memsets that held the host, and how that is known.


SYNCHRONOUS_MEMORY = frozenset({"Pinned", "Managed", "Unified"})
"""Memory whose memset is fully synchronous with the host (CUDA runtime API, "API synchronization
behavior").
"""

_MEMORY = re.compile(r"\((\w+)\)")


def waiting_memsets(trace: Trace, joined: Launches, busy: Intervals) -> Ints:
    """Calls of memsets without ``Async`` in their name that write memory of the synchronous kinds,
    or that were seen to wait.

    Seen means: the device was working when the host called, and the call returned only after the
    memset was done.
    """
    calls, work = trace.calls, trace.work
    rows = np.flatnonzero(
        mask(trace.names, calls.name, lambda name: "emset" in name and "Async" not in name)
    )
    rows = rows[joined.work_of_call[rows] >= 0]
    made = joined.work_of_call[rows]
    rows, made = rows[work.kind[made] == MEMSET], made[work.kind[made] == MEMSET]
    start = calls.start[rows]
    working = busy.covered(start, start + 1) > 0
    seen = working & (calls.end[rows] >= work.end[made]) & (work.start[made] > start)
    synchronous = mask(trace.names, work.name[made], _is_synchronous)
    found: Ints = rows[seen | synchronous]
    return found


def _is_synchronous(name: str) -> bool:
    memory = _MEMORY.search(name)
    return memory is not None and memory[1] in SYNCHRONOUS_MEMORY
