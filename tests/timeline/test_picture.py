"""What is drawn of a trace: every span of the chosen step in its lane, each moment of a step in one
part.
"""

from __future__ import annotations

import gzip

import pytest

from auditor.evidence.table import Evidence
from auditor.evidence.trace.charts import trace_charts
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.model import Finding
from auditor.recordings.standalone import TraceRecording
from auditor.timeline import Timeline, bars
from auditor.timeline.picture import TONES, step_parts, step_timeline
from tests.timeline.kineto import BACKWARD, call, kernel, memcpy, note, op, text


def step(number, at, length=1000.0, wait=100.0):
    """A step of 1 ms: loader, forward with a kernel, a wait, backward on another thread, the
    optimizer.
    """
    k = 10 * number
    return [
        note(f"ProfilerStep#{number}", at, length),
        note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 100.0),
        op("aten::linear", at + 100.0, 200.0),
        op("aten::addmm", at + 120.0, 100.0),
        call("cudaLaunchKernel", at + 150.0, 10.0, k + 1),
        kernel("gemm", at + 160.0, 300.0, k + 1),
        op("aten::item", at + 300.0, wait),
        op("aten::_local_scalar_dense", at + 300.0, wait),
        call("cudaMemcpyAsync", at + 300.0, 10.0, k + 2),
        memcpy("DtoH (Device -> Pageable)", at + 470.0, 2.0, k + 2),
        call("cudaStreamSynchronize", at + 310.0, wait - 10.0, k + 3),
        op("autograd::engine::evaluate_function: AddmmBackward0", at + 500.0, 200.0, tid=BACKWARD),
        note("Optimizer.step#AdamW.step", at + 800.0, 150.0),
    ]


@pytest.fixture
def line(tmp_path):
    def read(events):
        path = tmp_path / "trace.json.gz"
        path.write_bytes(gzip.compress(text(events).encode()))
        return Timeline.of(path)

    return read


def lane(chart, name):
    return [bar for bar in chart.bars if chart.lanes[bar.lane] == name]


def names(bars):
    return [TONES[bar.tone].name for bar in bars]


def test_a_step_lies_in_its_lanes(line):
    chart = step_timeline(
        line([event for number in range(3) for event in step(number, 2000.0 * number)])
    )
    assert chart.lanes == (
        "main thread",
        "backward thread",
        "loader",
        "host waits",
        "gpu 0 stream 7",
    )
    assert "ProfilerStep#2, the median of 3 steps" in chart.note
    main = lane(chart, "main thread")
    assert [(bar.start, bar.length, bar.label) for bar in main] == [
        (100.0, 200.0, "aten::linear"),
        (300.0, 100.0, "aten::item"),
        (800.0, 150.0, "Optimizer.step#AdamW.step"),
    ]
    assert names(main) == [
        "forward and other operators",
        "forward and other operators",
        "optimizer",
    ]
    assert names(lane(chart, "backward thread")) == ["backward"]
    assert [(bar.start, bar.length) for bar in lane(chart, "loader")] == [(0.0, 100.0)]
    assert names(lane(chart, "gpu 0 stream 7")) == ["kernels", "copies and memsets"]
    assert all(0 <= bar.start and bar.start + bar.length <= 1000.0 for bar in chart.bars)


def test_spans_that_nobody_could_tell_apart_are_joined_and_counted(line):
    events = [
        note("ProfilerStep#1", 0.0, 1_000_000.0),
        *(op("aten::add", 4.0 * n, 3.0) for n in range(20_000)),
    ]
    events += [op("aten::mul", 500_000.0, 9000.0)]
    chart = step_timeline(line(events))
    assert chart.total == 20_001
    assert [(bar.length, bar.label) for bar in chart.bars] == [
        (pytest.approx(80_000, abs=2), "aten::add and 19999 more"),
        (9000.0, "aten::mul"),
    ]


def test_a_crowded_step_has_a_bounded_number_of_bars(line, monkeypatch):
    monkeypatch.setattr(bars, "BARS", 100)
    events = [
        note("ProfilerStep#1", 0.0, 100_000.0),
        *(op(f"aten::op{n % 7}", 100.0 * n, 20.0) for n in range(1000)),
    ]
    chart = step_timeline(line(events))
    assert len(chart.bars) <= 100
    assert chart.total == 1000


def test_every_moment_of_a_step_is_in_one_part(line):
    chart = step_parts(
        line([event for number in range(3) for event in step(number, 2000.0 * number)])
    )
    assert chart.lanes == ("mean: host", "mean: device")
    shares = {TONES[bar.tone].name: bar.length for bar in chart.bars if bar.lane == 0}
    assert shares == {
        "waiting for the loader": 100.0,
        "host waits for the device": 100.0,
        "optimizer": 150.0,
        "backward": 200.0,
        "forward and other operators": 200.0,
        "Python, and what the trace does not show": 250.0,
    }
    device = {TONES[bar.tone].name: bar.length for bar in chart.bars if bar.lane == 1}
    assert device == {"kernels": 300.0, "copies and memsets": 2.0, "device idle": 698.0}


@pytest.mark.parametrize("begins", [960.0, 940.0], ids=["callable", "script"])
def test_all_steps_of_a_script_are_drawn_and_counted(line, begins):
    """A script's step ends in a hook of its optimizer: the next mark begins inside
    ``Optimizer.step``, which outlasts the mark before. The same work has the same numbers."""
    work = [
        event
        for number in range(6)
        for event in step(number, 1000.0 * number)[1:-1]
        + [note("Optimizer.step#AdamW.step", 1000.0 * number + 800.0, 160.0)]
    ]
    marks = [note(f"ProfilerStep#{n}", 1000.0 * n + begins, 999.0) for n in range(5)]
    drawn = line([*work, *marks])

    assert drawn.steps.count == 5
    shares = {
        TONES[bar.tone].name: round(bar.length / 999, 2)
        for bar in step_parts(drawn).bars
        if bar.lane == 0
    }
    assert shares == {
        "waiting for the loader": 0.1,
        "host waits for the device": 0.1,
        "optimizer": 0.16,
        "backward": 0.2,
        "forward and other operators": 0.2,
        "Python, and what the trace does not show": 0.24,
    }
    assert [int(ns) for ns in drawn.composition.loader] == [100_000] * 5
    assert [int(ns) for ns in drawn.composition.unknown] == [0] * 5
    assert not (drawn.waits.optimizer >= 0).any()  # item() waits outside the optimizer
    assert drawn.optimizer.operators == {}
    timeline = step_timeline(drawn)
    assert {"main thread", "loader", "host waits"} <= {
        timeline.lanes[bar.lane] for bar in timeline.bars
    }
    main = [bar.label for bar in lane(timeline, "main thread")]
    assert {"aten::linear", "aten::item"} <= set(main)


def test_the_slowest_step_stands_beside_the_mean_where_it_stands_out(line):
    chart = step_parts(line([*step(0, 0.0), *step(1, 2000.0), *step(2, 4000.0, length=1800.0)]))
    assert chart.lanes == ("mean: host", "mean: device", "slowest: host", "slowest: device")
    assert "the slowest, ProfilerStep#2." in chart.note


def test_findings_are_marked_where_their_waits_are(tmp_path):
    events = [event for number in range(3) for event in step(number, 2000.0 * number)]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text(events).encode()))
    recording = Evidence(TraceRecording(path))
    (place,) = recording.get(TraceWaits).of("scalar")
    marked = Finding(None, "m", facts=(*place.facts, ("also", "this")), code="SYNC001", key="wait")
    loader, other = (
        Finding(None, "m", code="DATA007", key="load"),
        Finding(None, "m", facts=(("operator", "x"),), key="other"),
    )
    chart, _ = trace_charts(recording, [marked, loader, other])
    found = {(pointer.key, pointer.start, pointer.length) for pointer in chart.pointers}
    assert ("load", 0.0, 100.0) in found
    assert {key for key, _, _ in found} == {"load", "wait"}
    assert all(300.0 <= start < 410.0 for key, start, _ in found if key == "wait")


@pytest.mark.parametrize(
    ("code", "own"),
    [
        ("KERN001", [(400.0, 100.0), (600.0, 99.0)]),
        ("KERN002", []),
        ("KERN003", [(400.0, 95.0), (600.0, 94.0)]),
    ],
)
def test_idle_findings_are_marked_at_gaps_that_can_be_seen(tmp_path, code, own):
    """Of two gaps up to the launch after them; one of less than a hundredth of the step is none."""
    events = [note("ProfilerStep#1", 0.0, 9000.0)]
    work = [(0.0, 300.0), (305.0, 95.0), (500.0, 100.0), (699.0, 8301.0)]
    for number, (start, us) in enumerate(work, 1):
        events += [call("cudaLaunchKernel", max(start - 10.0, 0.0), 5.0, number)]
        events += [kernel("gemm", start, us, number)]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text(events).encode()))
    finding = Finding(None, "m", code=code, key="idle")
    chart, _ = trace_charts(Evidence(TraceRecording(path)), [finding])
    assert [(pointer.start, pointer.length) for pointer in chart.pointers] == own


def test_a_timeline_knows_where_it_begins_in_its_trace(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text(step(0, 5000.0)).encode()))
    chart, _ = trace_charts(Evidence(TraceRecording(path)), [])
    assert chart.origin == 5000.0


def test_a_trace_without_steps_is_drawn_whole_and_has_no_parts(line):
    found = line([op("aten::add", 0.0, 10.0), op("aten::mul", 50.0, 10.0)])
    assert "marks no steps" in step_timeline(found).note
    assert step_parts(found) is None


def test_an_empty_trace_has_no_picture(line):
    assert step_timeline(line([note("x", 0.0, 0.0)])) is None
