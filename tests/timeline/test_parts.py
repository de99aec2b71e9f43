"""What the steps of a trace are made of: each moment of a step is in one part."""

import gzip

import pytest

from auditor.timeline import Timeline
from auditor.timeline.phases import TONES, step_parts
from tests.timeline.kineto import (
    BACKWARD,
    call,
    kernel,
    launch,
    loading,
    mark,
    memcpy,
    note,
    op,
    sync,
    text,
)


def step(number, at, length=1000.0, wait=100.0):
    """1 ms: loader, forward with a kernel, a wait, backward on another thread, optimizer."""
    k = 10 * number
    return [
        mark(at, length, number),
        loading(at, 100.0),
        op("aten::linear", at + 100.0, 200.0),
        op("aten::addmm", at + 120.0, 100.0),
        launch(at + 150.0, 10.0, k + 1),
        kernel("gemm", at + 160.0, 300.0, k + 1),
        op("aten::item", at + 300.0, wait),
        op("aten::_local_scalar_dense", at + 300.0, wait),
        call("cudaMemcpyAsync", at + 300.0, 10.0, k + 2),
        memcpy("DtoH (Device -> Pageable)", at + 470.0, 2.0, k + 2),
        sync(at + 310.0, wait - 10.0, k + 3),
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


def test_every_moment_of_a_step_is_in_one_part(line):
    chart = step_parts(
        line([event for number in range(3) for event in step(number, 2000.0 * number)])
    )
    assert chart.rows == ("mean: host", "mean: device")
    shares = {TONES[bar.tone].name: bar.length for bar in chart.bars if bar.row == 0}
    assert shares == {
        "waiting for the loader": 100.0,
        "host waits for the device": 100.0,
        "optimizer": 150.0,
        "backward": 200.0,
        "forward and other operators": 200.0,
        "Python, and what the trace does not show": 250.0,
    }
    device = {TONES[bar.tone].name: bar.length for bar in chart.bars if bar.row == 1}
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
    marks = [mark(1000.0 * n + begins, 999.0, n) for n in range(5)]
    drawn = line([*work, *marks])

    assert drawn.steps.count == 5
    shares = {
        TONES[bar.tone].name: round(bar.length / 999, 2)
        for bar in step_parts(drawn).bars
        if bar.row == 0
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


def test_the_slowest_step_stands_beside_the_mean_where_it_stands_out(line):
    chart = step_parts(line([*step(0, 0.0), *step(1, 2000.0), *step(2, 4000.0, length=1800.0)]))
    assert chart.rows == ("mean: host", "mean: device", "slowest: host", "slowest: device")
    assert "the slowest, ProfilerStep#2." in chart.note
