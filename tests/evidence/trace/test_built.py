"""Tables built from small traces: a trace that marks no steps is one step, and sums are per step."""

import pytest
from auditor.rules.amp.precision import Precision
from auditor.rules.dist.communication import Job

from auditor.evidence.table import Evidence
from auditor.evidence.trace.facts import step_us, timeline_of
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.evidence.trace.idle import DeviceIdle, device_time
from auditor.evidence.trace.patterns import OptimizerCalls, Structure
from auditor.recordings.standalone import TraceRecording
from tests.timeline.kineto import text, training

TABLES = (Job, Precision, Structure, DeviceIdle, OptimizerCalls, TraceWaits)


@pytest.fixture
def traced(tmp_path):
    """Evidence of so many steps of training, each of 1 ms."""

    def made(steps, *, marked=True):
        events = [
            each
            for each in training(steps)
            if marked or not str(each["name"]).startswith(("ProfilerStep", "Optimizer.step"))
        ]
        (tmp_path / "trace.json").write_text(text(events))
        return Evidence(TraceRecording(tmp_path / "trace.json"))

    return made


@pytest.mark.parametrize(("steps", "marked", "number"), [(1, True, 1), (3, True, 3), (3, False, 1)])
def test_how_many_steps_there_are(traced, steps, marked, number):
    evidence = traced(steps, marked=marked)
    tables = TABLES if marked else [each for each in TABLES if each is not OptimizerCalls]
    assert {each.__name__: evidence.get(each).steps for each in tables} == dict.fromkeys(
        (each.__name__ for each in tables), number
    )
    assert {evidence.get(each).marked for each in tables} == {marked}


@pytest.mark.parametrize("steps", [1, 3])
def test_one_step_of_training_in_numbers(traced, steps):
    """Kernels of 300 and 100 us and a copy of 4 us in a step of 1000 us."""
    evidence = traced(steps)
    precision, idle, optimizer = (
        evidence.get(each) for each in (Precision, DeviceIdle, OptimizerCalls)
    )
    times = device_time(evidence)
    assert (times.steps, times.step_us) == (steps, 1000.0)
    assert {part.name: part.us for part in times.parts} == pytest.approx(
        {part.name: part.share * 1000.0 for part in times.parts}
    )
    assert sum(part.share for part in times.parts) == pytest.approx(1.0)
    assert [each.kind for each in times.copies] == ["DtoH (Device -> Pageable)"]
    assert times.copies[0].us == 4.0
    assert (optimizer.calls, optimizer.names) == (steps, ("SGD",))
    assert (optimizer.us_per_step, optimizer.host_share) == (100.0, 0.1)
    assert (idle.window_us, idle.kernels) == (1000.0 * steps, times_of(times) * steps)
    assert precision.busy == pytest.approx(times.busy)
    line = timeline_of(evidence)
    assert (line.steps.count, step_us(line)) == (steps, (1000.0,) * steps)
    products = next(each for each in line.operators if each.name == "aten::mm")
    assert (products.calls, products.ns) == (2 * steps, 40_000 * steps)


def times_of(times):
    """Kernels in each step."""
    return round(sum(each.calls for each in times.kernels))
