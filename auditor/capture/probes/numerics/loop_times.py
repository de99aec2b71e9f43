"""How long the Python loops take that the precision pass has found, in steps without its watches."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from types import CodeType, FrameType
from typing import Any, cast

from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema.numerics import LoopTimeRow
from auditor.syntax.index import COMPREHENSIONS, LOOPS, index_of, lines_of

# -- loop clock ------------------------------------------------------------------------------------
# How long Python loops take, by the events of lines of the functions that they stand in
# (``sys.settrace``). No other function's lines are followed, and no operator is.

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def lines_of_loop(source: str, line: int) -> tuple[int, int] | None:
    """First and last line of the innermost loop or comprehension around a line, else None."""
    around = list(index_of(source).on(line, *LOOPS, *COMPREHENSIONS, *_SCOPES))
    if not around or isinstance(around[-1], _SCOPES):
        return None
    lines = lines_of(cast("ast.stmt | ast.expr", around[-1]))
    return lines.start, lines.stop - 1


@dataclass(eq=False)
class TimedLoop:
    """A loop of ``code``, by its lines; ``ns`` in it since they were taken last."""

    code: CodeType
    first: int
    last: int
    ns: int = 0
    since_ns: int = 0

    def is_like(self, other: TimedLoop) -> bool:
        """True for the same lines of the same code."""
        return self.code is other.code and (self.first, self.last) == (other.first, other.last)

    def take_us(self) -> float:
        """Return the time so far, and reset it."""
        ns, self.ns, self.since_ns = self.ns, 0, 0
        return ns / 1e3


Tracer = Callable[[FrameType, str, Any], Any]


def _tracer_of(loops: Sequence[TimedLoop]) -> Tracer:
    """Follows the lines of one function: within a loop it does as little as it can."""

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "exception":
            return trace
        line = frame.f_lineno if event == "line" else 0
        for loop in loops:
            if loop.first <= line <= loop.last:  # type: ignore[operator]
                if not loop.since_ns:
                    loop.since_ns = perf_counter_ns()
            elif loop.since_ns:
                loop.ns += perf_counter_ns() - loop.since_ns
                loop.since_ns = 0
        return trace

    return trace


class LoopClock:
    """Times loops of the calling thread between :meth:`begin` and :meth:`end`. Where the program
    has a trace function of its own (a debugger, coverage), it stays and nothing is timed.
    """

    def __init__(self, loops: Iterable[TimedLoop]) -> None:
        by_code: dict[int, list[TimedLoop]] = {}  # hashing a code is slow; they are kept alive
        for loop in loops:
            by_code.setdefault(id(loop.code), []).append(loop)
        self._tracers = {code: _tracer_of(own) for code, own in by_code.items()}
        self._frames: list[FrameType] = []
        self._global = self._global_tracer()
        self._running = False
        self.disturbed = False
        """Somebody else has traced."""

    def begin(self) -> None:
        """A step begins, maybe in a function that runs already."""
        if self.disturbed or sys.gettrace() is not None:
            self.disturbed = True
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            tracer = self._tracers.get(id(frame.f_code))
            if tracer is not None and frame.f_trace is None:
                frame.f_trace = tracer
                self._frames.append(frame)
            frame = frame.f_back
        self._running = True
        sys.settrace(self._global)

    def end(self) -> None:
        """The step is over. May be called twice."""
        running, self._running = self._running, False
        if running and sys.gettrace() is self._global:
            sys.settrace(None)
        else:
            self.disturbed |= running
        for frame in self._frames:
            if frame.f_trace is self._tracers[id(frame.f_code)]:
                del frame.f_trace
        self._frames.clear()

    def _global_tracer(self) -> Tracer:
        tracers = self._tracers

        def called(frame: FrameType, event: str, arg: Any) -> Any:
            return tracers.get(id(frame.f_code))

        return called


# -- loop times ------------------------------------------------------------------------------------


class LoopTimesProbe(Probe):
    """Writes ``loop_times`` in its own pass, only where ``context.loops`` names lines."""

    name = "loop_times"
    parts = ("loop_times",)
    passes = frozenset({"loops"})
    always = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._clock: LoopClock | None = None
        self._loops: dict[TimedLoop, set[int]] = {}
        """With the lines in them that were found."""

    def start(self) -> None:
        super().start()
        self._loops = {}
        for numbers in sorted(self.context.loops):
            found = ((number, self._loop(number)) for number in numbers)
            number, loop = next(((n, each) for n, each in found if each is not None), (0, None))
            if loop is not None:
                self._loops.setdefault(loop, set()).add(number)
        self._clock = LoopClock(self._loops)

    def _loop(self, number: int) -> TimedLoop | None:
        place = self.context.frames.places.get(number)
        if place is None:
            return None
        code, line = place
        lines = lines_of_loop("".join(linecache.getlines(code.co_filename)), line)
        if lines is None:
            return None
        made = TimedLoop(code, *lines)
        return next((each for each in self._loops if each.is_like(made)), made)

    def step_begin(self) -> None:
        if self._clock is not None:
            self._clock.begin()

    def step_end(self) -> None:
        if self._clock is None:
            return
        self._clock.end()
        for loop, numbers in self._loops.items():
            us = loop.take_us()
            for number in () if self._clock.disturbed else sorted(numbers):
                self.context.add(LoopTimeRow(at=number, us=us))

    def stop(self) -> None:
        clock, self._clock = self._clock, None
        if clock is not None:
            clock.end()
        self._loops = {}
