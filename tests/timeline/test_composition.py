"""What a step's time was spent on, memsets that wait, the tables of rules: counted by hand."""

import pytest
from auditor.rules.sync.driver_calls import TraceDriver

from auditor.evidence.table import Evidence
from auditor.evidence.trace.facts import TraceSteps
from auditor.recordings.standalone import TraceRecording
from auditor.rule import NotLooked
from auditor.timeline import Timeline
from tests.timeline.kineto import (
    call,
    frame,
    kernel,
    loading,
    loop,
    mark,
    memset,
    note,
    op,
    product,
    span,
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


def test_the_function_around_a_silence_may_be_a_librarys(recorded):
    def body(number, start):
        inner = frame("site-packages/PIL/Image.py(9): load", start + 600, 9350)
        return [frame("train.py(3): main", start, 9990), inner, *product(start + 100, number)]

    steps = recorded(*loop(3, 10_000.0, body)).get(TraceSteps)
    assert steps.silence.site.function == "main"
    assert steps.silence.function == "site-packages/PIL/Image.py(9): load"


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
