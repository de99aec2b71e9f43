"""Step times on made-up CUDA events: what a broken device or allocator does."""

import gc
import os
import subprocess
import sys
import threading
import time

import msgspec
import pytest
import torch

from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.base import Context
from auditor.capture.probes.step import clock as step_clock
from auditor.capture.probes.step.clock import Clock, Collector, RunQueue
from auditor.model.devices import CUDA
from auditor.recordings.folder import RecordingWriter


class Stream:
    def __init__(self, device=0):
        self.device = torch.device("cuda", device)


class Device:
    """Events take their time from ``now`` (ms); ``state`` is ok, busy or broken."""

    def __init__(self, monkeypatch):
        self.now, self.state, self.stream, self.waited = 0.0, "ok", Stream(), 0
        device = self

        class Event:
            def __init__(self, enable_timing=False):
                assert enable_timing

            def record(self, stream):
                self.at, self.on = device.now, stream.device

            def query(self):
                if device.state == "broken":
                    raise RuntimeError("CUDA error")
                return device.state == "ok"

            def synchronize(self):
                device.waited += 1
                if device.state == "broken":
                    raise RuntimeError("CUDA error")

            def elapsed_time(self, end):
                if self.on != end.on:
                    raise ValueError("events of two devices")
                return end.at - self.at

        stats = {"current": 1, "peak": 2}
        counters = {
            "allocated_bytes": {"all": stats},
            "reserved_bytes": {"all": stats},
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self.stream)
        monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda: counters)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: pytest.fail("waits for all streams"))


@pytest.fixture
def device(monkeypatch):
    return Device(monkeypatch)


@pytest.fixture
def clock(tmp_path, device):
    writer, warnings = RecordingWriter(tmp_path), []
    made = Clock(
        Context(writer, Frames(writer, ()), device=CUDA, pass_name="quiet", warn=warnings.append)
    )
    made.written, made.warnings = writer._rows, warnings
    yield made
    made.uninstall()


def step(clock, device, ms=2.0, leave=None):
    clock.begin()
    device.now += ms
    if leave is not None:
        device.stream = leave
    clock.end()


def test_times_are_read_at_the_end_of_the_pass_and_nothing_waits_before(clock, device):
    step(clock, device)
    step(clock, device, 3.0)
    assert device.waited == 0 and "device_times" not in clock.written
    clock.settle()
    assert [row.us for row in clock.written["device_times"]] == [2000.0, 3000.0]
    assert clock.written["steps"][0].peak_allocated == 2 and clock.warnings == []
    clock.settle()
    assert len(clock.written["device_times"]) == 2


def test_step_that_leaves_another_device_current_is_timed_on_its_first(clock, device):
    step(clock, device, leave=Stream(1))
    clock.settle()
    assert [row.us for row in clock.written["device_times"]] == [2000.0]


@pytest.mark.parametrize(("state", "known"), [("ok", 1), ("busy", 0), ("broken", 0)])
def test_an_error_keeps_what_the_device_finished_and_waits_for_nothing(clock, device, state, known):
    step(clock, device)
    device.state = state
    clock.abandon()
    assert device.waited == 0
    assert len(clock.written.get("device_times", ())) == known


def test_a_broken_device_is_said_and_not_raised(clock, device):
    step(clock, device)
    device.state = "broken"
    clock.settle()
    assert "device_times" not in clock.written and len(clock.warnings) == 1


@pytest.mark.parametrize(
    "problem",
    [RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats"), KeyError("x")],
)
def test_allocator_without_counters(clock, device, monkeypatch, problem):
    asked = []

    def refuse():
        asked.append(1)
        raise problem

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", refuse)
    step(clock, device)
    step(clock, device)
    assert asked == [1] and len(clock.warnings) == 1
    second = clock.written["steps"][1]
    assert second.allocated is msgspec.UNSET and second.rss > 0


@pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"),
    reason="this kernel does not count waits for the processor",
)
def test_time_in_the_run_queue_is_counted_and_sleep_is_not():
    queue, mine = RunQueue(), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(mine)})  # the program below inherits it: both want one processor
    try:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            begin, mark, until = queue.ns(), queue.mark(), time.perf_counter() + 1.0
            while time.perf_counter() < until:
                pass
            contended, own = queue.ns() - begin, queue.own_us(mark)
            other.kill()
    finally:
        os.sched_setaffinity(0, mine)
    begin = queue.ns()
    time.sleep(0.3)
    slept = queue.ns() - begin
    queue.close()
    assert 0.05e9 < contended < 1.1e9 and slept < 0.25e9
    assert own < 0.96e6


def test_a_collection_of_pythons_is_no_calls_time(monkeypatch):
    collector = Collector()
    monkeypatch.setattr(step_clock, "COLLECTOR", collector)
    rows = [[] for _ in range(300_000)]
    collector.install()
    try:
        queue = RunQueue()
        begin = queue.mark()
        gc.collect()
        whole, own = queue.since(begin)[0], queue.uncollected_us(begin)
        later = queue.mark()
        time.sleep(0.005)
        slept = queue.uncollected_us(later)
    finally:
        collector.uninstall()
    noted = collector.ns
    assert rows and noted and own < 0.5 * whole
    assert slept > 4_000, "a collection before a call is none of its own"
    gc.collect()
    assert collector.ns == noted


def test_a_kernel_without_the_count_says_zero(monkeypatch):
    def refused(*args):
        raise FileNotFoundError

    monkeypatch.setattr("auditor.capture.instruments.stack_sampler.os.open", refused)
    assert RunQueue().ns() == 0


class Queue(RunQueue):
    """Waits for a processor at every reading: ``held`` ms after each."""

    def __init__(self, monkeypatch, held):
        super().__init__()
        self.now = self.queued = 0
        self.held = iter(held)
        monkeypatch.setattr("auditor.capture.probes.step.clock.perf_counter_ns", self.clock)

    def pause(self):
        ms = next(self.held, 0)
        self.now, self.queued = self.now + ms * 1_000_000, self.queued + ms * 1_000_000

    def clock(self):
        now = self.now
        self.pause()
        return now

    def ns(self):
        queued = self.queued
        self.pause()
        return queued


@pytest.mark.parametrize(
    "held", [(11, 0, 0, 0), (0, 11, 0, 0), (0, 0, 11, 0), (0, 0, 0, 11), (3, 4, 5, 6)]
)
def test_a_wait_at_any_of_the_readings_is_never_longer_than_the_time(monkeypatch, held):
    queue = Queue(monkeypatch, held)
    mark = queue.mark()
    queue.now += 50_000  # 50 us of work
    us, queued_us = queue.since(mark)
    assert 0.0 <= queued_us <= us
    queue = Queue(monkeypatch, held)
    assert queue.own_us(queue.mark()) >= 0.0


def test_a_step_that_ends_on_another_thread_has_no_wait_of_its_own():
    queue = RunQueue()
    mark = queue.mark()
    told = []
    other = threading.Thread(target=lambda: told.append(queue.since(mark)))
    other.start()
    other.join()
    queue.close()
    assert told[0][1] == 0.0 and told[0][0] > 0.0
