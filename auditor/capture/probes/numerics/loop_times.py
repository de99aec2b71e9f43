"""How long the Python loops take that the precision pass has found, in steps without its watches."""

from __future__ import annotations

import linecache

from auditor.capture.instruments.loop_clock import LoopClock, TimedLoop, lines_of_loop
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema import LoopTimeRow


class LoopTimesProbe(Probe):
    """Writes ``loop_times`` in a pass of its own, which there is only where ``context.loops`` names
    lines.
    """

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
        """Find the loops around the lines."""
        self.context.writer.touch("loop_times")
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
        """Time the step."""
        if self._clock is not None:
            self._clock.begin()

    def step_end(self) -> None:
        """Write what its loops took."""
        if self._clock is None:
            return
        self._clock.end()
        for loop, numbers in self._loops.items():
            us = loop.take_us()
            for number in () if self._clock.disturbed else sorted(numbers):
                self.context.add(LoopTimeRow(at=number, us=us))

    def stop(self) -> None:
        """Trace no more."""
        clock, self._clock = self._clock, None
        if clock is not None:
            clock.end()
        self._loops = {}
