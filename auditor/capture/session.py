"""The session: which probes run when (:mod:`auditor.runs.schedule`), and all put back."""

from __future__ import annotations

import ctypes
import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.instruments.live_objects import (
    begin_counts_anew,
    one_look,
    put_back,
    set_aside,
)
from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.torch_private.autograd import next_number
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.memory.snapshot import MemoryHistory, in_use
from auditor.capture.probes.numerics.debug_modes import DebugModesProbe
from auditor.capture.probes.step.clock import Clock, RunQueue, on_cuda
from auditor.capture.process import ChildSignal
from auditor.errors import fault
from auditor.machine import uncollected
from auditor.runs.progress import Progress
from auditor.runs.schedule import TIMELESS, Pass, Schedule, Stats, passes_of, unprofiled

_LIBRARY: Final = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
_ERROR: Final = 2


def errors_alone() -> Callable[[], None]:
    """From now on; returns what undoes it. Without ``FLAGS_caffe2_log_level`` all is written."""
    try:
        level = ctypes.c_int.in_dll(ctypes.CDLL(_LIBRARY), "FLAGS_caffe2_log_level")
    except (OSError, ValueError):
        return lambda: None
    before, level.value = level.value, max(level.value, _ERROR)

    def undo() -> None:
        level.value = before

    return undo


TRACE = "trace.json.gz"

LEVEL = "KINETO_LOG_LEVEL"

NODE_BYTES = 60 << 10
"""What the profiler takes of the host's memory when it stops, for each autograd node that was made
while it ran: 0.9 to 1.1 GB of 18,000 nodes and 75,000 operators (an LSTM cell, unrolled), 2 GB of
38,000 nodes (two of them under LBFGS); torch 2.13. Host memory itself does not tell before: a step's
own comes and goes by more than the profiler's buffers.
"""


class Trace:
    """Runs torch.profiler over some steps and writes ``trace.json.gz``.

    Shapes and memory events are recorded, Python stacks are not: they cost 1.3-1.8 times the step
    and their lines are those of function definitions (our probes know the exact lines).
    ``prof.events()`` is never called: reading the exported file back is more than ten times cheaper
    (benchmarks/readout.py).
    """

    def __init__(self, context: Context, folder: Path) -> None:
        self._context = context
        self._folder = folder
        self._profile: profile | None = None
        self._annotation: Any = None
        self._before = self._steps = 0
        self._loud: Callable[[], None] = lambda: None

    @property
    def full(self) -> bool:
        """What was traced so far will take so much memory that no further step should be."""
        if self._profile is None:
            return False
        nodes = next_number() - self._before
        return nodes * (1 + 1 / max(1, self._steps)) * NODE_BYTES > self._context.freed.room

    def start(self) -> None:
        """Begin to profile."""
        activities = [ProfilerActivity.CPU]
        if on_cuda(self._context.device):
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(activities=activities, record_shapes=True, profile_memory=True)
        self._loud = errors_alone()  # torch tells of blocks that are older than the profiler
        with _silent_kineto():
            self._profile.start()
        self._before = next_number()

    def step_begin(self) -> None:
        """Open the step's annotation."""
        if self._profile is not None:
            self._annotation = record_function(f"ProfilerStep#{self._context.step}")  # type: ignore[no-untyped-call]
            self._annotation.__enter__()

    def step_end(self) -> None:
        """Close it."""
        if self._annotation is not None:
            self._annotation.__exit__(None, None, None)
            self._annotation = None
            self._steps += 1

    def stop(self) -> None:
        """Stop profiling and write what was traced. May be called twice, and in a step."""
        self.step_end()
        profiler, self._profile = self._profile, None
        if profiler is None:
            return
        try:
            if on_cuda(self._context.device):
                torch.cuda.synchronize()
            profiler.stop()
        finally:
            self._loud()
        raw = self._folder / "trace.json"
        try:
            profiler.export_chrome_trace(str(raw))
            compress(raw, self._folder / TRACE)
        finally:
            raw.unlink(missing_ok=True)
            profiler.profiler = None  # else its events stay until Python looks for cycles


@contextmanager
def _silent_kineto() -> Iterator[None]:
    """Kineto reads what it may print at the first profiler; else it prints two lines for each."""
    given = os.environ.get(LEVEL)
    os.environ.setdefault(LEVEL, "99")
    try:
        yield
    finally:
        if given is None:
            os.environ.pop(LEVEL, None)


def compress(raw: Path, packed: Path) -> None:
    """Level 2 by isal where installed: 9 times cheaper than torch's own ``.gz`` writer."""
    try:
        from isal import igzip

        target = igzip.open(packed, "wb", compresslevel=2)
    except ImportError:
        target = gzip.open(packed, "wb", compresslevel=2)  # noqa: SIM115 - closed below
    with raw.open("rb") as source, target:
        shutil.copyfileobj(source, target, 1 << 20)


LEAST_PEAK = 16 << 20
"""Bytes of a rehearsed step whose peak may be lowered: no rule names a smaller change."""


class Session:
    """Counts steps through the passes of a plan.

    The driver calls :meth:`begin` before and :meth:`end` after every step until :attr:`done`. It
    does so in a loop around a callable, or from optimizer hooks inside a running script.
    """

    def __init__(self, context: Context, probes: list[Probe], progress: Progress) -> None:
        self._plan = plan = context.plan
        self._context = context
        self._probes = probes
        self._progress = progress
        self._clock = Clock(context)
        self._run_queue = RunQueue()
        self._pass_mark = self._run_queue.mark()
        # no time counts there: the allocation history goes through all of the run
        self._on_null = plan.device == "null"
        self._trace: Trace | None = None
        self._history: MemoryHistory | None = None
        self._modes = next((probe for probe in probes if isinstance(probe, DebugModesProbe)), None)
        self._calls = self._compiles = 0
        self._seen: object = None
        self._told: list[tuple[str, int]] = []
        self._stats = Stats(
            plan.overhead_s,
            context.warn,
            bursts=context.bursts,
            asked_on=self._asked_on,
            half_full=self._half_full,
            peak_counts=self._peak_counts,
        )
        self.schedule = Schedule(plan, self._stats)
        self.failures: dict[str, str] = dict(plan.without)
        self._running: list[Probe] = []
        self._child_signal = ChildSignal()
        context.fail = self._failed

    # -- the whole ---------------------------------------------------------------------------------

    def install(self) -> None:
        """Before the user's code is imported."""
        COMPILED_CODE.install()
        self._clock.install()
        for probe in self._probes:
            self._guard(probe.name, probe.install)

    def uninstall(self) -> None:
        """Put everything back. May be called twice."""
        self._child_signal.stop()
        self._stop()
        self._clock.uninstall()
        self._run_queue.close()
        for probe in reversed(self._probes):
            self._guard(probe.name, probe.uninstall)
        self._guard("compiled code", COMPILED_CODE.uninstall)
        put_back()

    def plan_passes(self) -> None:
        """Decide which passes there are, as the first step begins and its device is known."""
        if not self.schedule.queue:
            watched = frozenset[str]().union(*(probe.passes for probe in self._probes))
            self.schedule.queue = passes_of(self._plan, self._context.device, watched)
            self._tell_outline()

    @property
    def done(self) -> bool:
        """True when all passes are complete."""
        return self.schedule.done

    @property
    def passes(self) -> list[Pass]:
        """The passes that have begun."""
        return self._stats.passes

    @property
    def under(self) -> list[str]:
        """The probes whose modes lie between the program and torch's operators now."""
        return [probe.name for probe in self._running if probe.watches_operators]

    # -- one step ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """A step of the target begins."""
        if self._context.writer.forked:
            return
        self._child_signal.look()
        if not self.passes:
            self.plan_passes()
        context = self._context
        with one_look():
            if self.schedule.between and self.schedule.queue:
                self._start()
            context.step = self._stats.now.done
            context.global_step = sum(each.done for each in self.passes)
            self._each(lambda probe: probe.step_begin())
        if self._trace is not None:
            self._trace.step_begin()
        context.in_step = True
        self._compiles = COMPILED_CODE.compiles
        self._clock.begin()

    def gave(self, returned: Any) -> None:
        """The target returned or yielded this. Its caller holds it no longer when the step ends."""
        for probe in self._running:
            if type(probe).step_gave is not Probe.step_gave and not self._context.writer.forked:
                self._guard(probe.name, partial(probe.step_gave, returned))

    def end(self) -> None:
        """The step has ended; rows are flushed before this returns."""
        if self._context.writer.forked:
            return
        self._child_signal.look()
        self._clock.end()
        self._context.in_step = False
        if self._trace is not None:
            self._trace.step_end()
        self._each(lambda probe: probe.step_end())
        self._look()
        self._context.writer.flush()
        self.schedule.step_done()
        at = self._stats.now
        self._progress(at.name, at.done, at.steps)
        self._tell_outline()
        if at.over:
            self._stop(passes_follow=bool(self.schedule.queue))

    def broken(self) -> None:
        """The target raised inside a step: keep what is known and stop the instruments."""
        self._context.in_step = False
        self._clock.abandon()
        self._stop()
        self._context.writer.flush()

    def _look(self) -> None:
        """What the step has shown."""
        context, stats, at = self._context, self._stats, self._stats.now
        seen = (dict(context.rows), dict(context.frames.met))
        context.rows.clear()
        context.frames.met.clear()
        stats.alike = stats.alike + 1 if seen == self._seen else 1
        self._seen = seen
        at.us.append(self._clock.own_us)
        at.seconds = self._run_queue.own_us(self._pass_mark) / 1e6
        at.compiled = COMPILED_CODE.calls != self._calls
        stats.compiles = COMPILED_CODE.compiles
        stats.calm = stats.calm + 1 if stats.compiles == self._compiles else 0
        shadow = context.shadow
        stats.unused = context.trained and shadow is not None and not shadow.operators
        if self._trace is not None and self._trace.full and at.done + 1 < at.most:
            context.warn(
                f"the trace holds {at.done + 1} of {at.most} steps: more would need too much memory"
            )
            self._stop_trace()
            stats.full = True
        if self._modes is not None and "modes" not in self.failures:
            stats.anomaly, stats.profiled = self._modes.anomaly_seen, self._modes.user_profiler_seen

    def _asked_on(self) -> bool:
        wanted: list[bool] = []
        self._each(lambda probe: wanted.append(probe.wants_more()))
        return any(wanted)

    def _half_full(self) -> bool:
        return self._context.device.native and any(
            2 * torch.cuda.max_memory_reserved(each)
            > torch.cuda.get_device_properties(each).total_memory
            for each in range(torch.cuda.device_count())
        )

    def _peak_counts(self) -> bool:
        shadow = self._context.shadow
        if shadow is None or self._plan.memory_limit is not None:
            return True
        if shadow.memory.counters()["peak_allocated"] >= LEAST_PEAK:
            return True
        self._context.writer.touch("leaner")  # looked at: there is nothing to save
        return False

    def _tell_outline(self) -> None:
        outline = [(each.name, each.steps) for each in self.schedule.planned]
        tell = getattr(self._progress, "outline", None)
        if outline != self._told and tell is not None:
            tell(outline)
        self._told = outline

    # -- one pass ----------------------------------------------------------------------------------

    def _start(self) -> None:
        at = self.schedule.next()
        if at.name in TIMELESS and not self._context.device.accelerator:
            set_aside()
        self._pass_mark, self._calls = self._run_queue.mark(), COMPILED_CODE.calls
        self._context.pass_name, self._seen = at.name, None
        self._context.rows.clear()
        self._context.frames.met.clear()
        self._context.bursts.clear()
        self._running = [
            p for p in self._probes if p.watches(at.name) and p.name not in self.failures
        ]
        if self._history is None and (at.name == "memory" or (self._on_null and in_use())):
            self._history = MemoryHistory(self._context, Path(self._plan.folder))
            self._context.history = True
            self._guard("snapshot", self._history.start)
        self._each(lambda probe: probe.start())
        if at.name == "quiet":
            begin_counts_anew()
        if at.name == "trace" and unprofiled(self._stats):
            self._trace = Trace(self._context, Path(self._plan.folder))
            if self._modes is not None:
                self._modes.on_user_profiler = self._yield_to_user_profiler
            self._guard("trace", self._in_own_profiler(self._trace.start))
        self._progress(at.name, 0, at.steps)

    def _stop(self, *, passes_follow: bool = False) -> None:
        if self._context.writer.forked:  # files and profiler are the copied process's
            self._trace, self._history, self._running = None, None, []
            return
        self._stop_trace()
        goes_on = passes_follow and self._on_null
        if self._history is not None and not goes_on:
            history, self._history, self._context.history = self._history, None, False
            self._guard("snapshot", history.stop)
        with one_look(), uncollected():  # what they sum up is let go of again
            for probe in reversed(self._running):
                self._guard(probe.name, probe.stop)
        self._running = []
        self._guard("clock", self._clock.settle)
        self._context.writer.flush()

    # -- the trace ---------------------------------------------------------------------------------

    def _stop_trace(self) -> None:
        trace, self._trace = self._trace, None
        if trace is not None:
            self._guard("trace", self._in_own_profiler(trace.stop))

    def _yield_to_user_profiler(self) -> None:
        if self._trace is not None:
            self._stop_trace()
            self._context.warn(
                "the step started a torch.profiler of its own: our trace ends before that step"
            )

    def _in_own_profiler(self, do: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            with nullcontext() if self._modes is None else self._modes.own():
                do()

        return run

    # -- failures of ours --------------------------------------------------------------------------

    @property
    def failed(self) -> dict[str, dict[str, Any]]:
        """Instruments that failed and the parts that are not whole, as the manifest has them."""
        parts = {probe.name: probe.parts for probe in self._probes}
        return {
            name: {"status": "failed", "error": error, "parts": list(parts.get(name, ()))}
            for name, error in self.failures.items()
        }

    def _each(self, do: Callable[[Probe], None]) -> None:
        """Ask every running probe; one that fails is stopped."""
        for probe in tuple(self._running):
            if probe.name not in self.failures:
                self._guard(probe.name, partial(do, probe))
            if probe.name in self.failures:
                self._running.remove(probe)
                self._guard(probe.name, probe.stop)

    def _guard(self, name: str, do: Callable[[], Any]) -> None:
        """Run one of our instruments: its failure is written down and never the user's."""
        try:
            with LOOKING:
                do()
        except Exception as error:
            self._failed(name, error)

    def _failed(self, name: str, error: Exception) -> None:
        if name not in self.failures:
            self.failures[name] = fault(error)
            parts = next((probe.parts for probe in self._probes if probe.name == name), ())
            self._context.lapse(
                name, parts, error
            )  # on disk by the step's end: the process may be killed
            self._context.warn(
                f"the probe {name!r} failed and saw nothing after that ({fault(error)})"
            )
