"""Replays of small traces whose answers can be computed by hand, and properties of any schedule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.errors import AuditProblem
from auditor.model.what_if import Change
from auditor.timeline import Timeline
from auditor.timeline.schedule import QUEUE
from auditor.timeline.what_if import Edits, replay
from tests.recorded_traces import TRACES
from tests.timeline.kineto import (
    BACKWARD,
    call,
    kernel,
    launch,
    mark,
    memcpy,
    note,
    op,
    sync,
    text,
    write,
)

US = 1000


@pytest.fixture
def replays(tmp_path):
    return lambda *events: Timeline.of(write(tmp_path, text(events))).replays


def launched(at, start, us, number, stream=7, thread=None):
    where = {} if thread is None else {"tid": thread}
    return [launch(at, 5, number, **where), kernel("k", start, us, number, stream)]


def waits(*rows):
    return [Change("waits", rows)]


# by hand


def test_a_wait_gone_lets_the_next_kernel_follow_at_once(replays):
    """Another stream that was told to wait for it follows, too."""
    made = replays(
        mark(1000, 160),
        *launched(1010, 1020, 100, 1),
        sync(1020, 105, 9),
        *launched(1135, 1145, 200, 2),
        call("cudaEventRecord", 1142, 1, 10),
        call("cudaStreamWaitEvent", 1145, 2, 11),
        *launched(1150, 1347, 100, 3, stream=20),
    )
    assert made.unchanged.whole_ns == made.recorded_ns == 447 * US
    # The host is 105 us earlier. The second kernel begins when the first ends, 25 us earlier; the
    # third, on the other stream, 2 us after the second as in the recording.
    assert made.gain(waits(0)) == 25 * US
    edited = replay(made.plan, made.edits(waits(0)))
    assert [start // US for start in edited.work_start] == [1020, 1120, 1322]


def full(number, us):
    """Launches of 5 us at once, which find the queue full from the 1025th on."""
    events, begun, at, free = [], [], 1000.0, 0.0
    for one in range(number):
        start = max(at + 10, free)
        end = max(at + 5, begun[one - QUEUE] if one >= QUEUE else 0)
        events.append(launch(at, end - at, one + 1))
        events.append(kernel("k", start, us, one + 1))
        begun.append(start)
        at, free = end, start + us
    return [mark(1000, at - 1000), *events]


def test_a_launch_waits_for_room_in_the_queue(replays):
    number, us = QUEUE + 60, 60
    made = replays(*full(number, us))
    assert made.unchanged.whole_ns == made.recorded_ns == (10 + number * us) * US
    assert made.plan.limit == QUEUE
    # With kernels of no length nothing holds a launch: 5 us each, the last one's kernel 5 us later.
    edits = Edits.none(made.plan)
    edits.length[:] = 0
    assert replay(made.plan, edits).whole_ns == (5 * number + 5) * US


def copied(*more, size=1_200_000):
    """A pageable copy of 285 us; pinned, its bytes take 10 us and 1 us for each 12 kB."""
    return [
        mark(1000, 340),
        op("aten::copy_", 1005, 306),
        call("cudaMemcpyAsync", 1010, 300, 1),
        memcpy("HtoD (Pageable -> Device)", 1020, 285, 1, size),
        *launched(1320, 1330, 100, 2),
        *more,
    ]


def test_a_blocking_copy_pinned_and_asynchronous(replays):
    made = replays(*copied())
    assert made.unchanged.whole_ns == made.recorded_ns == 430 * US
    # The copy takes 110 us, the kernel comes at its end, and the host waits for neither.
    edited = replay(made.plan, made.edits(waits(0)))
    assert [start // US for start in edited.work_start] == [1020, 1130]
    assert made.gain(waits(0)) == 200 * US


def test_of_a_copy_beside_other_work_the_pageable_part_stays(replays):
    """It is part of the price of the wait."""
    made = replays(*copied())
    hidden = [Change("copies to device")]
    assert made.edits(hidden).length.tolist() == [175 * US, 100 * US]
    assert made.gain([*hidden, *waits(0)]) > made.gain(waits(0))
    assert made.edits([Change("copies to host")]).length.tolist() == [285 * US, 100 * US]


def test_waits_in_a_row_buy_more_together_than_one_by_one(replays):
    """Where the first is gone, the second takes its time."""
    made = replays(
        mark(1000, 545),
        *launched(1010, 1020, 300, 1),
        sync(1020, 302, 8),
        sync(1325, 2, 9),
        *launched(1527, 1537, 100, 2),
    )
    assert made.unchanged.whole_ns == made.recorded_ns == 637 * US
    assert made.gain(waits(0)) == 5 * US
    assert made.gain(waits(1)) == 2 * US  # the call itself
    assert made.gain(waits(0, 1)) == 217 * US
    assert made.gain([*waits(0), *waits(1)]) == 217 * US


def test_launches_merged_leave_what_else_the_host_does(replays):
    made = replays(
        mark(1000, 1000),
        *launched(1100, 1110, 20, 1),
        *launched(1200, 1210, 20, 2),
        *launched(1900, 1910, 20, 3),  # 695 us of something else
    )
    # Two gaps of 100 and 95 us, and two launches of 5 us: the third keeps its gap, and its launch
    # of 5 us is gone, too.
    assert made.gain([Change("launches")]) == (100 + 95 + 15) * US


def test_a_collective_beside_other_work(replays):
    events = [
        mark(1000, 100),
        *launched(1010, 1020, 100, 1),
        call("cudaStreamWaitEvent", 1020, 2, 11),
        launch(1025, 5, 2),
        kernel("ncclKernel_AllReduce_RING_LL_Sum_float", 1121, 200, 2, 20),
        call("cudaStreamWaitEvent", 1040, 2, 12),
        *launched(1050, 1322, 50, 3),
    ]
    made = replays(*events)
    assert made.unchanged.whole_ns == made.recorded_ns == 372 * US
    assert made.gain([Change("collectives")]) == 200 * US


def test_the_backward_thread_goes_on_where_the_loop_left_off(replays):
    """Time won in the forward pass is won in the backward pass's thread and the next step."""
    made = replays(
        mark(1000, 400),
        *launched(1010, 1020, 90, 1),
        sync(1020, 100, 9),
        op("autograd::engine::evaluate_function: MmBackward0", 1150, 60, BACKWARD),
        *launched(1160, 1170, 10, 2, thread=BACKWARD),
        *launched(1300, 1310, 10, 3),
    )
    assert made.unchanged.whole_ns == made.recorded_ns == 400 * US
    starts = replay(made.plan, made.edits(waits(0))).work_start
    assert [start // US for start in starts] == [1020, 1110, 1210]


def test_two_threads_that_work_at_once_do_not_wait_for_one_another(replays):
    made = replays(
        mark(1000, 400),
        *launched(1010, 1020, 90, 1),
        sync(1020, 100, 9),
        op("aten::mm", 1100, 60, BACKWARD),
        *launched(1150, 1160, 10, 2, stream=20, thread=BACKWARD),
    )
    starts = replay(made.plan, made.edits(waits(0))).work_start
    assert [start // US for start in starts] == [1020, 1160]


def test_a_graph_keeps_its_order_and_the_stream_waits_for_it(replays):
    made = replays(
        mark(1000, 150),
        *launched(1010, 1020, 20, 1),
        sync(1020, 40, 9),
        call("cudaGraphLaunch", 1070, 5, 2),
        kernel("a", 1080, 50, 2, 164),
        kernel("b", 1140, 50, 2, 165),
        *launched(1085, 1192, 30, 3),
    )
    assert made.unchanged.whole_ns == made.recorded_ns == 222 * US
    # The graph begins 2 us after the kernel before it, as the kernel after it did after the graph.
    starts = replay(made.plan, made.edits(waits(0))).work_start
    assert [start // US for start in starts] == [1020, 1042, 1102, 1154]


def test_calls_that_take_long_stay_as_they_were(replays):
    made = replays(
        mark(1000, 500),
        *launched(1010, 1020, 10, 1),
        call("cudaMalloc", 1040, 300, 8),
        *launched(1350, 1360, 10, 2),
    )
    assert made.unchanged.whole_ns == made.recorded_ns
    assert made.gain([Change("calls", (1,))]) == 300 * US


# when it is not trusted


def test_a_delay_that_nothing_shows_is_left_out_and_makes_the_replay_untrusted(replays):
    made = replays(mark(1000, 100), *launched(1010, 1500, 100, 1))
    assert made.error == pytest.approx(-435 / 600)
    assert made.reason == (
        "replayed with nothing changed, the steps would be 72% shorter than recorded"
    )


@pytest.mark.parametrize(("us", "trusted"), [(5, True), (30, False)])
def test_work_without_its_launch_makes_it_untrusted(replays, us, trusted):
    made = replays(mark(1000, 400), *launched(1010, 1020, 100, 1), kernel("k", 1130, us, 77))
    assert made.unchanged.whole_ns == made.recorded_ns
    assert (made.reason == "") is trusted
    assert trusted or "does not show the launches of 23%" in made.reason


# any schedule


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(("launch", "launch", "launch", "wait", "item", "event", "host")),
        st.integers(0, 2),
        st.integers(1, 400),
    ),
    min_size=1,
    max_size=40,
)


def played(actions):
    """The trace of a host and three streams that do these (what, stream, us) one by one."""
    at, number = 1000, 0
    free, after = {7: 0, 8: 0, 9: 0}, {7: 0, 8: 0, 9: 0}
    events = []
    for what, place, us in actions:
        stream, number = 7 + place, number + 1
        if what == "launch":
            start = max(at + 8, free[stream] + 1, after[stream] + 2)
            events += launched(at, start, us, number, stream)
            free[stream], after[stream] = start + us, 0
            at += 5
        elif what == "wait":
            end = max(at + 2, max(free.values()) + 3)
            events.append(call("cudaDeviceSynchronize", at, end - at, number))
            at = end
        elif what == "item":
            start = max(at + 8, free[stream] + 1)
            events.append(call("cudaMemcpyAsync", at, start + 10 - at, number))
            events.append(memcpy("DtoH (Device -> Pageable)", start, 6, number, 8, stream))
            free[stream], at = start + 6, start + 10
        elif what == "event":
            events.append(call("cudaStreamWaitEvent", at, 1, number))
            after[stream] = max(free.values())
            at += 1
        at += us // 8 if what == "host" else 2
    middle = (1000 + at) // 2
    marks = [mark(1000, middle - 1000), mark(middle, at - middle, 2)]
    return [*marks, *events]


@given(ACTIONS)
def test_a_consistent_schedule_is_replayed_exactly(tmp_path_factory, actions):
    made = Timeline.of(write(tmp_path_factory.mktemp("trace"), text(played(actions)))).replays
    if made is not None:
        assert made.unchanged.whole_ns == made.recorded_ns
        assert max(map(abs, made.step_errors)) == 0


@given(ACTIONS, st.data())
def test_what_is_left_out_never_costs_time(tmp_path_factory, actions, data):
    line = Timeline.of(write(tmp_path_factory.mktemp("trace"), text(played(actions))))
    made = line.replays
    if made is None:
        return
    rows = list(range(len(line.waits.call)))
    more = data.draw(st.lists(st.sampled_from(rows), unique=True)) if rows else []
    fewer = data.draw(st.lists(st.sampled_from(more), unique=True)) if more else []
    gains = [made.gain(waits(*some)) for some in (fewer, more)]
    assert 0 <= gains[0] <= gains[1] <= made.recorded_ns
    slow = sum(int(made._slow[line.copies.call == line.waits.call[row]].sum()) for row in more)
    assert gains[1] <= int(line.waits.held[more].sum()) + slow
    edited = replay(made.plan, made.edits(waits(*more)))
    assert (np.array(edited.end) >= np.array(edited.begin)).all()
    assert (np.array(edited.work_end) >= np.array(edited.work_start)).all()
    assert (np.array(edited.begin) <= np.array(made.unchanged.begin)).all()
    assert (np.array(edited.work_start) <= np.array(made.unchanged.work_start)).all()


TIMES = st.integers(0, 3000)
CALLS = st.sampled_from(
    ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaStreamWaitEvent")
    + ("cudaGraphLaunch", "cudaMalloc", "cudaEventSynchronize", "hipMemcpyWithStream")
)
EVENTS = st.lists(
    st.one_of(
        st.builds(call, CALLS, TIMES, TIMES, st.integers(0, 9), st.sampled_from((100, 200))),
        st.builds(
            kernel, st.just("k"), TIMES, TIMES, st.integers(0, 9), st.integers(7, 9), st.just(0)
        ),
        st.builds(
            memcpy, st.just("HtoD (Pageable -> Device)"), TIMES, TIMES, st.integers(0, 9), TIMES
        ),
        st.builds(op, st.just("aten::mm"), TIMES, TIMES, st.sampled_from((100, 200))),
        st.builds(
            note, st.sampled_from(("ProfilerStep#1", "Optimizer.step#SGD.step")), TIMES, TIMES
        ),
    ),
    min_size=1,
    max_size=30,
)
KINDS = ("loader", "host gaps", "launches", "optimizer launches", "collectives", "copies to device")


@given(EVENTS)
def test_what_no_device_did_is_replayed_too(tmp_path_factory, events):
    """Overlaps, repeated correlation ids, work before its launch: strangers' files have it all."""
    line = Timeline.of(write(tmp_path_factory.mktemp("trace"), text(events)))
    made = line.replays
    if made is None:
        return
    assert isinstance(made.reason, str)
    rows = tuple(range(len(line.waits.call)))
    gains = [made.gain([Change("waits", rows)]), *(made.gain([Change(kind)]) for kind in KINDS)]
    together = made.gain([Change("waits", rows), *map(Change, KINDS)])
    assert 0 <= max(gains) <= together


# real recordings


def recorded_replays():
    """Those of tests/recordings are always there; others only beside some checkouts."""
    for key, one in TRACES.items():
        try:
            line = Timeline.of(one.path)
        except AuditProblem:
            continue
        if line.replays is not None:
            yield key, line


@pytest.fixture(scope="module")
def recordings():
    found = dict(recorded_replays())
    assert found  # those of ours
    return found


def test_recordings_are_replayed_as_they_were(recordings):
    """docs/log/replay.md has the figures; ``benchmarks/replay.py`` prints them."""
    errors = np.abs([line.replays.error for line in recordings.values()])
    assert np.median(errors) <= 0.03
    assert (errors <= 0.25).mean() >= 0.8
