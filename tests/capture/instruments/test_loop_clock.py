"""Loops are timed by the lines of their function alone, and whoever traced before still does."""

import sys
import textwrap
import time
from collections.abc import Callable
from types import CodeType

import pytest

from auditor.capture.probes.numerics.loop_times import LoopClock, TimedLoop, lines_of_loop

SOURCE = textwrap.dedent(
    """
    import time

    def looped(n):
        time.sleep(0.004)
        for turn in range(n):
            inner(turn)
        time.sleep(0.004)

    def inner(turn):
        time.sleep(0.001)

    def listed(n):
        return [inner(turn) for turn in range(n)]

    def left(n):
        for turn in range(n):
            inner(turn)
            if turn == 9:
                return turn
            try:
                raise KeyError
            except KeyError:
                pass

    def broken(n):
        for turn in range(n):
            inner(turn)
            if turn == 9:
                raise ValueError(turn)
    """
)
TURNS = {"looped": 6, "listed": 14, "left": 17, "broken": 27}
"""A line of the loop of each."""


@pytest.fixture(autouse=True)
def no_tracer():
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def code_of(name: str, inside: dict[str, object]) -> CodeType:
    code = inside[name].__code__  # type: ignore[attr-defined]
    listed = [each for each in code.co_consts if isinstance(each, CodeType)]
    return listed[0] if listed else code


@pytest.mark.parametrize("name", TURNS)
def test_the_time_is_that_of_the_loop(name):
    names: dict[str, object] = {}
    exec(compile(SOURCE, "own.py", "exec"), names)
    lines = lines_of_loop(SOURCE, TURNS[name] + 1 if name == "looped" else TURNS[name])
    assert lines is not None
    loop = TimedLoop(code_of(name, names), *lines)
    clock = LoopClock([loop])
    for _ in range(2):
        clock.begin()
        began = time.perf_counter()
        try:
            names[name](10)  # type: ignore[operator]
        except ValueError:
            assert name == "broken"
        took_us = (time.perf_counter() - began) * 1e6
        clock.end()
        us = loop.take_us()
        assert 10_000.0 <= us <= took_us - (8_000.0 if name == "looped" else 0.0)
    assert sys.gettrace() is None and not clock.disturbed


def test_a_loop_of_a_function_that_runs_already_is_timed():
    """A script's step begins in the middle of its module, which is on the stack."""
    here = sys._getframe()
    first = here.f_lineno + 6
    loop = TimedLoop(here.f_code, first, first + 1)
    clock = LoopClock([loop])
    took_us = []
    for _ in range(2):
        clock.begin()
        for _ in range(5):
            time.sleep(0.001)
        clock.end()
        took_us.append(loop.take_us())
        assert here.f_trace is None
    assert min(took_us) >= 5000.0


@pytest.mark.parametrize("when", ["before", "within"])
def test_another_tracer_stays_and_nothing_is_said(when):
    def others(frame: object, event: str, arg: object) -> None:
        return None

    clock = LoopClock([])
    clock.begin()
    clock.end()
    clock.end()
    assert not clock.disturbed
    if when == "before":
        sys.settrace(others)
    clock.begin()
    if when == "within":
        sys.settrace(others)
    clock.end()
    clock.end()
    assert sys.gettrace() is others and clock.disturbed
    sys.settrace(None)
    clock.begin()
    assert sys.gettrace() is None


@pytest.mark.parametrize(
    ("source", "line", "lines"),
    [
        ("for a in b:\n    c\n", 2, (1, 2)),
        ("while a:\n    for b in c:\n        d\n    e\n", 3, (2, 3)),
        ("while a:\n    for b in c:\n        d\n    e\n", 4, (1, 4)),
        ("x = [\n    a\n    for a in b\n]\n", 2, (1, 4)),
        ("for a in b:\n    def f():\n        c\n", 3, None),
        ("a\n", 1, None),
        ("for a in:\n", 1, None),
        ("", 1, None),
    ],
)
def test_lines_of_the_innermost_loop(source, line, lines):
    assert lines_of_loop(source, line) == lines


def test_functions_alike_are_told_apart():
    def made() -> Callable[[], None]:
        return lambda: None

    one, two = made().__code__, (lambda: None).__code__
    assert TimedLoop(one, 1, 2).is_like(TimedLoop(one, 1, 2))
    assert not TimedLoop(one, 1, 2).is_like(TimedLoop(two, 1, 2))
    assert not TimedLoop(one, 1, 2).is_like(TimedLoop(one, 1, 3))
