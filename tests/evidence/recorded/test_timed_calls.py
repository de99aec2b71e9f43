"""How often a line calls, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from auditor.evidence.recorded.timed_calls import CallingLine
from auditor.model import Site

HERE = Site("t.py", 3, "step", "f()")


@dataclass(frozen=True)
class Call:
    step: int
    n: int = 1
    us: float = 0.0


def test_calls_and_time_are_averaged_over_all_steps_of_the_pass():
    line = CallingLine(HERE, (Call(0, 2, 30.0), Call(0, 1, 5.0), Call(3, 1, 5.0)), 5)
    assert (line.pattern.seen, line.pattern.of) == ((0, 3), 5)
    assert line.per_step == 4 / 5
    assert line.us_per_step == 40.0 / 5


def test_a_pass_without_a_step_has_no_average():
    line = CallingLine(HERE, (Call(0, 2, 30.0),), 0)
    assert (line.per_step, line.us_per_step) == (0.0, 0.0)
