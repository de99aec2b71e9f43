"""The passes: which probes run when, step after step, and everything put back at the end, whatever
happens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.instruments.live_objects import one_look
from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.passes import (
    LEANER_SHARE,
    LONG_STEPS,
    HeldEager,
    Pass,
    SteadySteps,
    WarmUp,
    passes_of,
)
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.memory.snapshot import MemoryHistory, in_use
from auditor.capture.probes.numerics.debug_modes import DebugModesProbe
from auditor.capture.probes.step.clock import Clock, RunQueue
from auditor.capture.probes.step.profiler_trace import Trace
from auditor.capture.target.signal_handlers import ChildSignal
from auditor.cycles import cycle_of, prolonged, whole_cycles
from auditor.errors import fault
from auditor.recordings.schema.course import CourseRow
from auditor.runs.plan import (
    LOOP_STEPS,
    NUMBERS_SECONDS,
    PRICED_STEPS,
    VALUE_SECONDS,
    Passes,
    Plan,
    Trial,
)
from auditor.runs.progress import Progress


class Session:
    """Counts steps through the passes of a plan.

    The driver calls :meth:`begin` before and :meth:`end` after every step until :attr:`done`. It
    does so in a loop around a callable, or from optimizer hooks inside a running script.
    """

    def __init__(
        self, plan: Plan, context: Context, probes: list[Probe], progress: Progress
    ) -> None:
        self._plan = plan
        self._context = context
        self._probes = probes
        self._progress = progress
        self._clock = Clock(context)
        self._warm_up = WarmUp(context.warn)
        self._steady = SteadySteps(context)
        self._held = HeldEager(context)
        self._trace: Trace | None = None
        self._history: MemoryHistory | None = None
        self._modes = next((probe for probe in probes if isinstance(probe, DebugModesProbe)), None)
        self._queue: list[Pass] = []
        self._pass_began, self._run_queue = 0.0, RunQueue()
        self._pass_mark = self._run_queue.mark()
        self._untraced = False
        self._own_us: dict[str, list[float]] = {"quiet": [], "eager_held": []}
        self.passes: list[Pass] = []
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
        self._stop_pass()
        self._clock.uninstall()
        self._run_queue.close()
        for probe in reversed(self._probes):
            self._guard(probe.name, probe.uninstall)
        self._guard("compiled code", COMPILED_CODE.uninstall)

    @property
    def done(self) -> bool:
        """True when all passes are complete."""
        return bool(self.passes) and self._pass.done >= self._pass.steps and not self._queue

    @property
    def _pass(self) -> Pass:
        return self.passes[-1]

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
        if not self.passes or self._pass.done >= self._pass.steps:
            self._stop_pass(passes_follow=bool(self._queue))
        with one_look():
            if not self.passes or self._pass.done >= self._pass.steps:
                self._next_pass()
            context.step = self._pass.done
            context.global_step = sum(each.done for each in self.passes)
            self._each(lambda probe: probe.step_begin())
        if self._trace is not None:
            self._trace.step_begin()
        context.in_step = True
        self._warm_up.begin()
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
        self._pass.done += 1
        self._steady.step_ends()
        if self._pass.name in self._own_us:
            self._own_us[self._pass.name].append(self._clock.own_us)
        self._context.writer.flush()
        self._end_full_trace()
        self._end_long_pass()
        self._warm_on()
        self._watch_on()
        self._progress(self._pass.name, self._pass.done, self._pass.steps)
        if self._pass.done >= self._pass.steps and self._pass.name != "warmup":
            self._stop_pass(passes_follow=bool(self._queue))
            self._replan()

    def broken(self) -> None:
        """The target raised inside a step: keep what is known and stop the instruments."""
        self._context.in_step = False
        self._clock.abandon()
        self._stop_pass()
        self._context.writer.flush()

    # -- passes ------------------------------------------------------------------------------------

    def _next_pass(self) -> None:
        if not self._queue:
            return
        self.passes.append(self._queue.pop(0))
        self._pass_began, self._pass_mark = monotonic(), self._run_queue.mark()
        self._context.pass_name = self._pass.name
        self._steady.begins()
        self._held.begins()
        self._running = [
            p for p in self._probes if self._pass.name in p.passes and p.name not in self.failures
        ]
        self._start_history()
        self._each(lambda probe: probe.start())
        if self._pass.name == "trace" and not self._untraced:
            self._start_trace()
        self._progress(self._pass.name, 0, self._pass.steps)

    def _start_history(self) -> None:
        if self._history is not None:
            return
        if self._pass.name == "memory" or (self._on_null and in_use()):
            self._history = MemoryHistory(self._context, Path(self._plan.folder))
            self._context.history = True
            self._guard("snapshot", self._history.start)

    @property
    def _on_null(self) -> bool:
        """No time counts on the null device, so the allocation history goes through all of the run."""
        return self._plan.device == "null"

    def _stop_pass(self, *, passes_follow: bool = False) -> None:
        if (
            self._context.writer.forked
        ):  # files and the profiler are those of the process that was copied
            self._trace, self._history, self._running = None, None, []
            return
        self._stop_trace()
        goes_on = passes_follow and self._on_null
        if self._history is not None and not goes_on:
            history, self._history, self._context.history = self._history, None, False
            self._guard("snapshot", history.stop)
        for probe in reversed(self._running):
            self._guard(probe.name, probe.stop)
        self._running = []
        self._guard("clock", self._clock.settle)
        self._context.writer.flush()

    def plan_passes(self) -> None:
        """Decide which passes there are: when the first step is about to begin, and it is known
        what it can run on.
        """
        if not self._queue:
            watched = frozenset[str]().union(*(probe.passes for probe in self._probes))
            self._queue = passes_of(self._plan, self._context.device, watched)
            self._tell_outline()

    @property
    def planned(self) -> list[Pass]:
        """All passes, done and to come, as far as they are known by now."""
        return [*self.passes, *self._queue]

    @property
    def _together(self) -> bool:
        """Ranks take the same steps: one that took fewer would leave the others in a collective."""
        return self._plan.world_size > 1

    def _replan(self) -> None:
        """What a pass has shown of the step may change what comes after it."""
        if self._on_null:
            return
        if self._together:
            self._untraced = not self._may_trace()
            return
        known = len(self._queue)
        if self._pass.name == "quiet" and not self._trial:
            if self._held.wanted(monotonic() - self._pass_began):
                self._insert("eager_held", self._pass.done)
        elif self._pass.name == "eager_held":
            compiled_us, eager_us = map(median, self._own_us.values())
            if eager_us < compiled_us:  # which may be the machine's doing as well
                self._insert("compiled_again", self._pass.done)
        modes = None if "modes" in self.failures else self._modes
        if self._pass.name == "quiet" and modes is not None and modes.anomaly_seen:
            self._insert("anomaly_off", min(PRICED_STEPS, self._pass.done))
        longer = self._pass.name == "quiet" and self._prolong()
        if self._pass.name == "numbers" and self._may_time_loops():
            self._queue[:0] = [Pass("loops", LOOP_STEPS)]
        if self._queue and self._queue[0].name == "trace" and not self._may_trace():
            del self._queue[0]
        if self._queue and self._queue[0].name == "leaner" and self._is_long(self._queue[0].steps):
            self._context.warn(LONG_STEPS)
            del self._queue[0]
        if longer or len(self._queue) != known:
            self._tell_outline()

    def _may_time_loops(self) -> bool:
        """Loops were found, on a host whose time they are; code that torch compiles is left alone."""
        on_host = not (self._context.device.accelerator or self._context.device.simulated)
        return bool(self._context.loops) and on_host and not (self._bound or COMPILED_CODE.compiles)

    def _prolong(self) -> bool:
        """Give the diagnostic pass whole cycles where the step has phases that come once in many;
        True if it is longer now.
        """
        plan = self._plan
        loud = next((each for each in self._queue if each.name == "loud"), None)
        passes = plan.purpose_as(Passes)
        if loud is None or passes is None or passes.loud or self._bound:
            return False
        planned = loud.steps
        loud.steps = whole_cycles(self._own_us["quiet"], planned, plan.steps)
        if loud.steps > planned:
            self._context.warn(prolonged(loud.steps))
        return loud.steps > planned

    @property
    def _trial(self) -> bool:
        return self._plan.purpose_as(Trial) is not None

    @property
    def _bound(self) -> bool:
        """Trials, ranks, and targets with so many steps and no more keep to their plan."""
        return self._trial or self._plan.fit is not None or self._together

    @property
    def _compared(self) -> bool:
        """Another run takes the same steps, and is laid beside this one."""
        return self._on_null or CourseRow.part in self._plan.parts

    def _is_long(self, steps: int) -> bool:
        each_s = self._pass_s / max(1, self._pass.done)
        return not self._compared and steps * each_s > LEANER_SHARE * self._plan.overhead_s

    @property
    def _may_shorten(self) -> bool:
        """Not if another run must take equal steps, nor if step times show phases."""
        passes = self._plan.purpose_as(Passes)
        kept = passes is None or passes.loud or self._bound or self._on_null
        return not kept and cycle_of(self._own_us["quiet"]) is None

    def _watch_on(self) -> None:
        """One more step of the precision pass where its steps alternate."""
        done, seconds = self._pass.done, monotonic() - self._pass_began
        over = self._pass.name == "numbers" and done >= self._pass.steps
        if not over or self._bound or seconds / done * (done + 1) > NUMBERS_SECONDS:
            return
        wanted: list[bool] = []
        self._each(lambda probe: wanted.append(probe.wants_more()))
        if any(wanted):
            self._pass.steps += 1
            self._tell_outline()

    def _warm_on(self) -> None:
        """One more step of warm-up where the program still compiles."""
        if self._pass.name != "warmup" or self._bound or self._context.device.simulated:
            return
        if self._warm_up.needs_more(self._pass.done, self._pass.steps):
            self._pass.steps += 1
            self._tell_outline()

    def _insert(self, name: str, steps: int) -> None:
        """Let one more pass follow, where steps are counted of up to half of the diagnostic ones."""
        if self._plan.fit is not None:
            loud = next((each for each in self._queue if each.name == "loud"), Pass("loud", 0))
            steps = min(steps, loud.steps // 2)
            loud.steps -= steps
        if steps:
            self._queue.insert(0, Pass(name, steps))

    def _tell_outline(self) -> None:
        outline = getattr(self._progress, "outline", None)
        if outline is not None:
            outline([(each.name, each.steps) for each in self.planned])

    # -- the trace ---------------------------------------------------------------------------------

    def _may_trace(self) -> bool:
        if self._modes is not None and self._modes.user_profiler_seen:
            self._context.warn(
                "the step runs torch.profiler itself: our own trace was left out (two profilers "
                "cannot run at once), and the step times include the cost of yours"
            )
            return False
        return True

    def _start_trace(self) -> None:
        self._trace = Trace(self._context, Path(self._plan.folder))
        if self._modes is not None:
            self._modes.on_user_profiler = self._yield_to_user_profiler
        self._guard("trace", self._in_own_profiler(self._trace.start))

    def _stop_trace(self) -> None:
        trace, self._trace = self._trace, None
        if trace is not None:
            self._guard("trace", self._in_own_profiler(trace.stop))

    def _end_full_trace(self) -> None:
        done, steps = self._pass.done, self._pass.steps
        if self._trace is not None and done < steps and self._trace.full:
            self._context.warn(
                f"the steps are so long that the trace holds {done} of {steps}: more would take "
                "too much memory"
            )
            if self._together:
                self._stop_trace()
            else:
                self._pass.steps = done

    def _end_long_pass(self) -> None:
        """A pass whose steps may be long has had its time."""
        name, seconds = self._pass.name, monotonic() - self._pass_began
        if (name == "values" and seconds > VALUE_SECONDS) or (
            name == "eager_held" and self._held.enough(self._pass.done, seconds)
        ):
            self._pass.steps = self._pass.done
        if name == "loud" and self._may_shorten and self._steady.enough:
            self._pass.shorten()
        if self._context.unused and name in ("warmup", "loud"):  # one step of each says so
            self._pass.steps = self._pass.done
            self._queue = [Pass("loud", 1)] if name == "warmup" else []
        self._end_beyond_share()

    @property
    def _pass_s(self) -> float:
        return self._run_queue.own_us(self._pass_mark) / 1e6

    def _end_beyond_share(self) -> None:
        """Steps are so long that all of the pass would take more than is given to it."""
        at, overhead_s, seconds = self._pass, self._plan.overhead_s, self._pass_s
        judged = self._plan.purpose_as(Passes) is not None
        if self._bound or not judged or self._compared or at.done >= at.steps:
            return
        if at.goes_beyond(seconds, overhead_s, shadow=self._plan.rehearses):
            self._context.warn(LONG_STEPS)
            at.cut, at.steps = at.cut + at.steps - at.done, at.done

    def _yield_to_user_profiler(self) -> None:
        if self._trace is not None:
            self._stop_trace()
            self._context.warn(
                "the step started a torch.profiler of its own: our trace ends before that step"
            )

    def _in_own_profiler(self, do: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            if self._modes is None:
                do()
                return
            with self._modes.own():
                do()

        return run

    # -- failures of ours --------------------------------------------------------------------------

    @property
    def failed(self) -> dict[str, dict[str, Any]]:
        """Instruments that failed, with the parts that are therefore not whole, as the manifest has
        them.
        """
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
        """Run one of our own instruments: its failure is written down and never becomes the
        user's.
        """
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
