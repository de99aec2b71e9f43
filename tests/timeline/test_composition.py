"""What a step's time was spent on, memsets that wait, the tables of rules: counted by hand."""

import pytest
from auditor.rules.mem.segments import TraceMemory
from auditor.rules.sync.driver_calls import TraceDriver

from auditor.evidence.table import Evidence
from auditor.evidence.trace.facts import TraceSteps
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.recordings.standalone import TraceRecording
from auditor.rule import NotLooked
from auditor.timeline import Timeline
from tests.timeline.kineto import (
    BACKWARD,
    call,
    frame,
    head_with_memory,
    kernel,
    loading,
    loop,
    mark,
    memcpy,
    memory,
    memset,
    note,
    op,
    product,
    span,
    sync,
    text,
    training,
    write,
)

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.fixture
def line_of(tmp_path):
    return lambda *events: Timeline.of(write(tmp_path, text(events)))


@pytest.fixture
def recorded(tmp_path):
    return lambda *events, **head: Evidence(TraceRecording(write(tmp_path, text(events, **head))))


def us(column):
    return [int(ns) // 1000 for ns in column]


# composition


def test_copies_count_alone_only_where_no_kernel_runs_beside_them(line_of):
    sent = memcpy("HtoD (Pinned -> Device)", 100, 400, 1, stream=9)
    parts = line_of(mark(0, 1000), sent, kernel("k", 300, 500, 2)).composition
    assert (us(parts.to_device), us(parts.to_device_alone), us(parts.busy)) == ([400], [200], [700])


def test_copies_to_the_host_are_not_copies_to_the_device(line_of):
    parts = line_of(mark(0, 1000), memcpy("DtoH (Device -> Pinned)", 100, 400, 1)).composition
    assert us(parts.to_device) == [0]


def test_the_loaders_wait_is_cut_at_the_step_and_at_device_work(line_of):
    steps = [mark(0, 1000), mark(1000, 1000, 2)]
    parts = line_of(*steps, loading(800, 600), kernel("k", 1100, 200, 1)).composition
    assert (us(parts.loader), us(parts.loader_alone)) == ([200, 400], [200, 200])


def test_a_loader_that_another_thread_waits_for_holds_nobody_up(line_of):
    marks = [mark(0, 1000)]
    assert us(line_of(*marks, loading(100, 600, tid=BACKWARD)).composition.loader) == [0]
    # who runs the steps is not known
    assert us(line_of(loading(100, 600, tid=BACKWARD)).composition.loader) == [600]


def test_a_stretch_without_events_is_unknown_from_a_millisecond_on(line_of):
    marks = [mark(0, 10_000)]
    parts = line_of(*marks, op("a", 0, 2000), op("b", 2999, 3001), op("c", 7500, 2500)).composition
    assert us(parts.unknown) == [1500]
    assert us(parts.longest_unknown) == [6000, 7500]


@pytest.mark.parametrize(
    "known",
    [
        op("aten::mm", 1000, 8000),
        call("cudaDeviceSynchronize", 1000, 8000),
        kernel("k", 1000, 8000),
        loading(1000, 8000),
        note("Optimizer.step#SGD.step", 1000, 8000),
        span("overhead", "Buffer Flush", 1000, 8000),
    ],
    ids=lambda event: event["name"],
)
def test_what_the_trace_knows_is_not_unknown(line_of, known):
    events = [mark(0, 10_000), op("a", 0, 1000), op("b", 9000, 1000)]
    assert us(line_of(*events, known).composition.unknown) == [0]
    # a name is no explanation
    assert us(line_of(*events, note("my_phase", 1000, 8000)).composition.unknown) == [8000]


def test_marks_that_are_operators_hide_nothing(line_of):
    old = op("ProfilerStep#1", 0, 10_000)  # torch of 2021 wrote them so
    assert us(line_of(old, op("a", 0, 1000)).composition.unknown) == [9000]


def test_time_outside_of_steps_is_nobodys(line_of):
    steps = [mark(0, 1000), mark(9000, 1000, 2)]
    parts = line_of(*steps, op("a", 0, 1000), op("b", 9000, 1000)).composition
    assert us(parts.unknown) == [0, 0]


def test_an_empty_trace_has_an_empty_composition(line_of):
    parts = line_of(op("a", 5, 0)).composition
    assert us(parts.us) == us(parts.unknown) == [0]


# memsets


def test_a_memset_waits_for_its_kind_of_memory_or_if_it_was_seen_to(line_of):
    events = [
        *product(0, 1, 500),
        *(call("cudaMemset", 100, 10, 2), memset("Pinned", 520, 5, 2)),
        *(call("cudaMemset", 120, 10, 3), memset("Device", 530, 5, 3)),
        *(call("cudaMemset", 140, 500, 4), memset("Device", 540, 5, 4)),
        *(call("cudaMemsetAsync", 700, 500, 5), memset("Pinned", 710, 5, 5)),
        # the device had nothing to wait for
        *(call("cudaMemset", 2000, 20, 6), memset("Device", 2005, 5, 6)),
    ]
    line = line_of(*events)
    assert line.trace.calls.correlation[line.waiting_memsets].tolist() == [2, 4]


# tables


def test_copies_asked_not_to_wait_are_told_apart_by_their_operator(recorded):
    def body(number, start):
        first = 10 * number
        blocking = [
            op("aten::copy_", start, 100),
            call("cudaMemcpyAsync", start + 1, 20, first),
            memcpy("HtoD (Pageable -> Device)", start + 5, 10, first, 4096),
            sync(start + 30, 5, first + 1),
        ]
        hopeful = [
            op("aten::copy_", start + 200, 100),
            call("cudaMemcpyAsync", start + 201, 20, first + 2),
            memcpy("HtoD (Pageable -> Device)", start + 205, 10, first + 2, 1 << 20),
        ]
        return [*blocking, *hopeful, *product(start + 400, first + 3)]

    waits = recorded(*loop(3, 1000.0, body)).get(TraceWaits)
    (blocking,), (hopeful,) = (
        waits.of("copy to device"),
        waits.of("copy to device", asynchronous=True),
    )
    assert (blocking.n, blocking.amount, blocking.synchronises) == (3, "4 KiB each", True)
    assert (hopeful.n, hopeful.amount, hopeful.synchronises) == (3, "1 MiB each", False)


def test_a_number_read_through_pageable_memory_stays_a_read(recorded):
    events = [event for event in training(3) if event["name"] != "cudaStreamSynchronize"]
    waits = recorded(*events).get(TraceWaits)
    assert [place.cause for place in waits.of("scalar")] == ["scalar"]
    assert not waits.of("copy to host", "copy", asynchronous=True)


def test_shares_of_steps(recorded):
    steps = recorded(
        *loop(4, 1000.0, lambda number, start: [loading(start, 250), *product(start + 300, number)])
    ).get(TraceSteps)
    assert (steps.certain, steps.workers, steps.where) == (True, "num_workers=0", "4 steps")
    assert steps.share("loader_us") == steps.share("loader_alone_us") == 0.25
    assert (
        steps.mean("busy_us"),
        steps.steps_above("loader_us", 0.25),
        steps.steps_above("loader_us", 0.26),
    ) == (300, 4, 0)
    steps.need_steps(4)
    with pytest.raises(NotLooked, match="4 steps, 5 are needed"):
        steps.need_steps(5)


def test_steps_from_the_optimizer_are_said_and_not_certain(recorded):
    events = [event for event in training(5) if not event["name"].startswith("ProfilerStep")]
    steps = recorded(*events).get(TraceSteps)
    assert (steps.marked, steps.certain) == (True, False)
    assert steps.where == "4 steps (from one optimizer step to the next)"


def test_the_function_of_the_longest_silence_and_of_the_slowest_batch_are_named(recorded):
    def body(number, start):
        frames = [
            frame("train.py(3): main", start, 9990),
            frame("data.py(9): read", start + 2000, 5000),
        ]
        return [*frames, loading(start + 10, 100), *product(start + 200, number)]

    steps = recorded(*loop(3, 10_000.0, body)).get(TraceSteps)
    assert (steps.silence.site.function, steps.loader_site.function) == ("read", "main")


def test_the_function_around_a_silence_may_be_a_librarys(recorded):
    def body(number, start):
        inner = frame("site-packages/PIL/Image.py(9): load", start + 600, 9350)
        return [frame("train.py(3): main", start, 9990), inner, *product(start + 100, number)]

    steps = recorded(*loop(3, 10_000.0, body)).get(TraceSteps)
    assert steps.silence.site.function == "main"
    assert steps.silence.function == "site-packages/PIL/Image.py(9): load"


def test_driver_calls_are_counted_by_step_with_their_time(recorded):
    allocating = [
        call("cudaMalloc", 1100, 30),
        call("cudaMalloc", 3100, 50),
        call("cudaMalloc", 3200, 10),
        call("cudaMalloc", 10, 5),
    ]
    driver = recorded(
        *allocating, *loop(3, 1000.0, lambda number, start: product(start + 400, number))
    ).get(TraceDriver)
    (calls,) = driver.allocator
    assert (calls.n, calls.per_step, calls.us) == (4, (1, 0, 2), 95.0)
    assert (calls.pattern.seen, calls.pins) == ((1,), False)


@pytest.mark.parametrize(
    ("at", "took", "lost"),
    [
        (1100, 200, 0),  # the device works on
        # it ran dry at 1500, and is given work 200 us later than it could have been
        (1400, 200, 200),
        (1550, 100, 100),  # it idled all the time
        (1300, 500, 410),  # no more than the device idled before the next launch had returned
    ],
    ids=["hidden", "half hidden", "idle", "longer than the work"],
)
def test_a_call_costs_the_idle_time_of_the_device_that_it_causes(recorded, at, took, lost):
    # busy from 1015 to 1500 and from 1915 on
    work = [*product(1000, 1, 485), *product(1900, 2, 50)]
    driver = recorded(mark(1000, 1000), call("cudaMalloc", at, took), *work).get(TraceDriver)
    assert driver.allocator[0].lost_us == (lost,)


def test_calls_in_one_gap_share_what_it_gives(recorded):
    work = [*product(1000, 1, 485), *product(1900, 2, 50)]
    calls = [call("cudaMalloc", 1450, 100), call("cudaMalloc", 1550, 300)]
    driver = recorded(mark(1000, 1000), *calls, *work).get(TraceDriver)
    assert driver.allocator[0].lost_us[0] <= 415  # the gap


def test_peaks_stand_beside_the_capacity_of_their_own_device(recorded):
    events = [*training(2), memory(1500, 10, 600, 800), memory(1600, -10, 590, 800)]
    (peak,) = recorded(*events, head=head_with_memory(1000)).get(TraceMemory).devices
    assert (peak.name, peak.share, peak.reserved_share) == ("NVIDIA A100", 0.6, 0.8)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([op("aten::mm", 0, 10), memory(5, 10, 10)], "no GPU"),
        (training(2), "profile_memory"),
        ([*training(2), memory(1500, 10, 600)], "capacity"),
    ],
)
def test_memory_that_cannot_be_judged_says_why(recorded, events, reason):
    with pytest.raises(NotLooked, match=reason):
        recorded(*events).get(TraceMemory)
