"""Bars of a chart: as many as a page can hold, whatever the lanes hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.timeline import Timeline, bars
from auditor.timeline.bars import BARS, Spans, Window
from auditor.timeline.intervals import union
from auditor.timeline.picture import LANES, step_timeline
from tests.timeline.kineto import call, kernel, memcpy, note, op, text, write

NAMES = ("a", "b", "c")


def lane(start, length, tone, window, name=0):
    """Spans of one lane in order of time, cut to the window."""
    order = np.argsort(start, kind="stable")
    start, length, tone = (
        np.broadcast_to(column, len(start))[order] for column in (start, length, tone)
    )
    end = np.minimum(start + length, window.end)
    return Spans(
        "lane", start, end, np.asarray(tone, np.int64), np.full(len(start), name, np.int32)
    )


def made(lanes, window):
    found = bars.bars(lanes, window, NAMES)
    for bar in found:
        assert bar.length > 0
        assert 0 <= bar.start <= bar.start + bar.length <= (window.end - window.start + 1) / 1e3
        assert 0 <= bar.lane < len(lanes)
    return found


@pytest.mark.parametrize("length", [0, 1, 40_000, 3_000_000])
@pytest.mark.parametrize("count", [6000, 90_000])
def test_tones_in_turn_never_make_more_bars_than_a_page_holds(count, length):
    window = Window("step", 0, 1_000_000_000)
    start = np.linspace(0, window.end - 1, count).astype(np.int64)
    one = lane(start, length, np.arange(count) % 3, window)
    found = made([one, one], window)
    assert 2 <= len(found) <= BARS
    assert {bar.lane for bar in found} == {0, 1}


def test_a_huge_gap_hides_nothing():
    """A second of work at each end of an hour: every lane still shows both."""
    window = Window("step", 0, 3600 * 10**9)
    start = np.concatenate(
        (np.arange(20_000) * 50_000, window.end - 10**9 + np.arange(20_000) * 50_000)
    )
    found = made([lane(start, 10_000, np.arange(40_000) % 2, window)], window)
    assert min(bar.start for bar in found) == 0
    assert max(bar.start + bar.length for bar in found) >= (window.end - 10**9) / 1e3


def test_a_small_lane_keeps_its_bars_beside_a_crowded_one():
    window = Window("step", 0, 1_000_000_000)
    crowded = lane(
        np.linspace(0, window.end - 1, 50_000).astype(np.int64), 5, np.arange(50_000) % 2, window
    )
    small = lane(np.array([1_000_000, 500_000_000]), 2_000_000, np.array([0, 1]), window, name=2)
    found = made([crowded, small], window)
    assert [(bar.start, bar.length, bar.label) for bar in found if bar.lane == 1] == [
        (1000.0, 2000.0, "c"),
        (500_000.0, 2000.0, "c"),
    ]
    assert len(found) <= BARS


def test_a_cell_has_the_tone_of_most_of_it_and_says_how_many_it_holds(monkeypatch):
    monkeypatch.setattr(bars, "BARS", 2)
    window = Window("step", 0, 1000)
    one = lane(
        np.array([0, 100, 200, 600, 610]),
        np.array([50, 60, 200, 5, 300]),
        np.array([0, 1, 1, 0, 2]),
        window,
        name=1,
    )
    found = made([one], window)
    assert [(bar.tone, bar.label, bar.start, bar.length) for bar in found] == [
        (1, "b and 2 more", 0.0, 0.31),
        (2, "b and 1 more", 0.6, 0.305),
    ]


def test_tones_that_share_every_cell_share_the_bars(monkeypatch):
    """A kernel and two copies as long, again and again: a third of what is drawn are kernels."""
    monkeypatch.setattr(bars, "BARS", 300)
    window = Window("step", 0, 9_000_000)
    start = np.arange(90_000) * 100
    found = made([lane(start, 80, np.array([1, 2, 2] * 30_000), window)], window)
    drawn = {tone: sum(bar.length for bar in found if bar.tone == tone) for tone in (1, 2)}
    assert drawn[1] / (drawn[1] + drawn[2]) == pytest.approx(1 / 3, abs=0.02)


SPAN = st.tuples(st.integers(0, 999), st.integers(0, 1200), st.integers(0, 3))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(SPAN, min_size=1, max_size=60), min_size=1, max_size=8), st.integers(8, 40)
)
def test_any_lanes_fit_and_no_lane_shows_more_time_than_it_holds(spans, most):
    window = Window("step", 0, 1000)
    lanes = [lane(*(np.array(column) for column in zip(*one)), window) for one in spans]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bars, "BARS", most)
        patch.setattr(bars, "WALKED", 30)
        found = made(lanes, window)
    assert len(found) <= most
    for number, one in enumerate(lanes):
        mine = [bar for bar in found if bar.lane == number]
        assert mine
        if len(one.start) > 30:  # in cells: covered time, and a tick for each span that has none
            assert sum(bar.length for bar in mine) * 1e3 <= union(one.start, one.end).length + len(
                mine
            )


def test_a_trace_of_many_threads_streams_and_devices_has_a_bounded_chart(tmp_path):
    """Tones that alternate on every lane, more lanes than a page has, spans without length, and a
    gap of ten minutes.
    """
    events = [note("ProfilerStep#1", 0, 6e8)]
    for number in range(3000):
        at = 100.0 * number + (5e8 if number > 1500 else 0.0)
        device, number_of_work = number % 12, number + 1
        events += [
            op("aten::mm", at, 20, tid=1000 + number % 70),
            op(
                "autograd::engine::evaluate_function: MmBackward0",
                at + 30,
                0,
                tid=1000 + number % 70,
            ),
            call("cudaLaunchKernel", at, 5, number_of_work, tid=1000 + number % 70),
            kernel("gemm", at + 10, 30, number_of_work, stream=number % 5, device=device),
            {
                **memcpy("HtoD (Pinned -> Device)", at + 50, 0, 10_000 + number, stream=number % 5),
                "pid": device,
            },
        ]
    chart = step_timeline(Timeline.of(write(tmp_path, text(events))))
    assert len(chart.lanes) == LANES
    assert LANES <= len(chart.bars) <= BARS
    assert chart.total > 6000
