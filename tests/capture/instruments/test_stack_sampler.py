"""Stacks of a thread inside a watched call."""

import dis
import gc
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from auditor.capture.instruments import stack_sampler
from auditor.capture.instruments.stack_sampler import (
    SWITCH_S,
    Met,
    StackSampler,
    line_of,
)


def asleep(seconds: float) -> None:
    time.sleep(seconds)


def busy(seconds: float) -> int:
    end, turns = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        turns += 1
    return turns


def watched(sampler: StackSampler, what, seconds: float) -> None:
    sampler.begin("key")
    try:
        what(seconds)
    finally:
        sampler.end()


def watched_until_seen(sampler: StackSampler, what) -> list[Any]:
    """Its stacks. Where other programs have the processors, no look may count for a while."""
    for _ in range(50):
        watched(sampler, what, 0.1)
        if seen := [stack for _, stack in sampler.taken() if stack]:
            return seen
    return []


def test_nothing_is_seen_outside_and_nothing_is_left_behind():
    sampler, before, threads = StackSampler(), sys.getswitchinterval(), threading.active_count()
    sampler.begin("key")
    assert sys.getswitchinterval() <= SWITCH_S and threading.active_count() == threads + 1
    sampler.end()
    sampler.taken()
    assert sys.getswitchinterval() == before
    asleep(0.05)
    assert sampler.taken() == {}
    sampler.rest()
    sampler.rest()
    assert threading.active_count() == threads
    assert watched_until_seen(sampler, asleep), "it begins again after a rest"
    sampler.rest()


def test_a_look_after_the_call_has_ended_counts_for_nothing():
    sampler = StackSampler()

    def call() -> object:
        sampler.begin("key")
        kept = sampler._watched
        sampler.end()
        return kept

    sampler._watched = call()
    assert sampler._meet() is None
    sampler.rest()


def test_a_stack_whose_frames_moved_during_the_look_counts_for_nothing(monkeypatch):
    """The innermost frame is met in one line, its callers in another."""
    sampler, go, met = StackSampler(), threading.Event(), threading.Event()

    def call() -> None:
        sampler.begin("key")
        met.set()
        go.wait()
        busy(0.2)
        sampler.end()

    thread = threading.Thread(target=call)
    thread.start()
    met.wait()
    looker, sampler._looker = sampler._looker, None  # only the test looks
    sampler._over.release()
    looker.join()
    sampler.taken()
    time.sleep(0.01)
    assert sampler._meet().stack[-1][0] is threading.Event.wait.__code__

    def while_it_goes_on(frame) -> int:
        go.set()
        time.sleep(0.02)
        return frame.f_lineno

    monkeypatch.setattr(stack_sampler, "line_of", while_it_goes_on)
    assert sampler._meet() is None
    thread.join()
    assert sampler.taken() == {}


def test_time_that_no_look_stands_for_is_nobodys():
    sampler = StackSampler()
    sampler._inside_us["key"], sampler._covered_us["key"] = 50_000.0, 5_000.0
    stack = ((busy.__code__, 1),)
    sampler._us["key", stack] = [4_000.0, 2]
    assert sampler.taken() == {("key", stack): (4_000.0, 2), ("key", ()): (36_000.0, 0)}
    sampler._inside_us["key"], sampler._covered_us["key"] = 5_000.0, 6_000.0
    sampler._us["key", stack] = [4_000.0, 2]
    assert sampler.taken()["key", ()] == (0.0, 0)


@pytest.mark.parametrize(("queued_us", "looks"), [(100, 1), (900, 1), (1100, 0)])
def test_a_look_that_waited_for_a_processor_counts_neither_way(queued_us, looks):
    sampler, stack = StackSampler(), ((busy.__code__, 1),)
    sampler._inside_us["key"] = 6_000.0
    sampler._note(Met("key", 0, 2_000_000, stack), queued_us * 1000)
    sampler._note(Met("key", 2_000_000, 6_000_000, stack), 0)
    (_, (us, seen)), *rest = sampler.taken().items()
    assert (us, seen) == (4_000.0 + 2_000.0 * looks, 1 + looks)
    assert [unseen for _, unseen in rest] == [(0.0, 0)]


def nested(noise):
    for row in noise:
        for value in row:
            if value < 1:
                busy(value)
            elif value > 2:
                asleep(value)
    return noise


def test_an_instruction_without_a_line_has_that_before_it_and_a_jump_back_that_of_its_loop():
    code, first = nested.__code__, nested.__code__.co_firstlineno
    lines = {start: line for start, _, line in code.co_lines()}
    known, heads = first, []
    for each in dis.get_instructions(code):
        known = lines.get(each.offset) or known
        told = line_of(SimpleNamespace(f_lineno=None, f_code=code, f_lasti=each.offset))
        if each.opname.startswith("JUMP") and each.argval < each.offset:
            heads.append(told - first)
        else:
            assert told == known
    assert set(heads) == {1, 2}


def test_time_in_a_loop_of_pixels_goes_to_its_lines():
    """Threads take turns at the jumps back of loops."""

    def pixels(seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for row in range(40):
                for column in range(40):
                    if row * column < 0:
                        row = column
                    elif row * column > 1600:
                        column = row

    sampler = StackSampler()
    first = pixels.__code__.co_firstlineno
    seen = [stack[-1] for stack in watched_until_seen(sampler, pixels)]
    sampler.rest()
    assert seen and all(first <= line <= first + 9 for _, line in seen)


@pytest.mark.parametrize("enabled", [True, False])
def test_nothing_is_collected_while_frames_are_listed(monkeypatch, enabled):
    states: set[bool] = set()
    frames = sys._current_frames

    def listed() -> Any:
        states.add(gc.isenabled())
        return frames()

    monkeypatch.setattr(sys, "_current_frames", listed)
    was = gc.isenabled()
    sampler = StackSampler()
    try:
        (gc.enable if enabled else gc.disable)()
        sampler.begin("key")
        until = time.perf_counter() + 5
        while not states and time.perf_counter() < until:
            time.sleep(0.001)
        sampler.end()
        sampler.rest()
        after = gc.isenabled()
    finally:
        (gc.enable if was else gc.disable)()
    assert states == {enabled and sys.version_info >= (3, 12)}
    assert after is enabled
