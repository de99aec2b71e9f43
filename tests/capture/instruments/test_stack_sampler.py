"""Stacks of a thread inside a watched call."""

from __future__ import annotations

import dis
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from auditor.capture.instruments.stack_sampler import SWITCH_S, StackSampler, line_of


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


def test_time_goes_to_the_function_that_takes_it() -> None:
    sampler = StackSampler()
    for what in (asleep, busy):
        began = time.perf_counter_ns()
        watched(sampler, what, 0.1)
        took_us = (time.perf_counter_ns() - began) / 1e3
        seen = sampler.taken()
        assert {key for key, _ in seen} == {"key"}
        assert all(stack[-1][0] is what.__code__ for _, stack in seen if stack), (
            "the frame that begins is the end of each stack, without itself"
        )
        assert 0.0 < sum(us for us, _ in seen.values()) <= took_us
        assert sum(looks for _, looks in seen.values()) >= 2
    sampler.rest()


def test_nothing_is_seen_outside_and_nothing_is_left_behind() -> None:
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
    watched(sampler, asleep, 0.05)
    assert sampler.taken(), "it begins again after a rest"
    sampler.rest()


def test_a_look_after_the_call_has_ended_counts_for_nothing() -> None:
    sampler = StackSampler()

    def call() -> object:
        sampler.begin("key")
        kept = sampler._watched
        sampler.end()
        return kept

    sampler._watched = call()
    sampler._look()
    assert sampler.taken() == {}
    sampler.rest()


def nested(noise):
    for row in noise:
        for value in row:
            if value < 1:
                busy(value)
            elif value > 2:
                asleep(value)
    return noise


def test_an_instruction_without_a_line_has_that_before_it_and_a_jump_back_that_of_its_loop() -> (
    None
):
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


@pytest.mark.parametrize(("known", "told"), [(7, 7), (None, nested.__code__.co_firstlineno)])
def test_a_line_that_is_known_is_told(known, told) -> None:
    assert line_of(SimpleNamespace(f_lineno=known, f_code=nested.__code__, f_lasti=-1)) == told


def test_time_in_a_loop_of_pixels_goes_to_its_lines() -> None:
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
    watched(sampler, pixels, 0.1)
    first = pixels.__code__.co_firstlineno
    seen = [stack[-1] for _, stack in sampler.taken() if stack]
    sampler.rest()
    assert seen and all(first <= line <= first + 9 for _, line in seen)
