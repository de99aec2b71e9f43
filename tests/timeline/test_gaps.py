"""The costliest gap of a step: the longest, whose it was, and silence where it has no weight."""

from __future__ import annotations

import pytest

from auditor.evidence.table import Evidence
from auditor.evidence.trace.charts import trace_charts
from auditor.evidence.trace.host_waits import TraceWaits
from auditor.model import Finding
from auditor.recordings.standalone import TraceRecording
from tests.timeline.kineto import HEAD, call, kernel, memcpy, note, op, text, write

LOAD = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


CPU = HEAD.replace(
    '{"id": 0, "name": "NVIDIA A100", "computeMajor": 8, "computeMinor": 0, "numSms": 108}', ""
)
"""Of a machine without a GPU: that of others lists one, whose work is missing where none is there."""


def gap(tmp_path, *events, findings=(), us=10_000.0, head=HEAD):
    path = write(tmp_path, text([note("ProfilerStep#1", 0.0, us), *events], head))
    charts = trace_charts(Evidence(TraceRecording(path)), findings)
    return next(chart for chart in charts if chart.kind == "timeline").gap


def launched(at, start, us, number):
    return [call("cudaLaunchKernel", at, 5.0, number), kernel("gemm", start, us, number)]


def finding(code, key="it", facts=()):
    return Finding(None, "m", code=code, key=key, facts=facts)


BUSY = [*launched(10.0, 20.0, 3000.0, 1), *launched(200.0, 3030.0, 2000.0, 2)]


def test_the_longest_gap_of_the_device_while_the_host_did_something_else(tmp_path):
    events = [
        *BUSY,  # busy up to 5,030 us
        op("aten::sort", 5200.0, 2500.0),
        *launched(7900.0, 8030.0, 1900.0, 3),
    ]
    found = gap(tmp_path, *events, findings=(finding("SYNC001"), finding("KERN002", "host")))
    assert (found.start, found.length, found.whose) == (5030.0, 3000.0, "device")
    assert found.share == pytest.approx(0.3)
    assert found.said == "the host did something else, in `aten::sort`"
    assert found.key == "host"
    assert len(found.lanes) == 1


def test_the_finding_of_the_very_wait_explains_its_gap(tmp_path):
    events = [
        *BUSY,
        op("aten::item", 2000.0, 3100.0),
        op("aten::_local_scalar_dense", 2000.0, 3100.0),
        call("cudaMemcpyAsync", 2010.0, 5.0, 9),
        memcpy("DtoH (Device -> Pageable)", 5031.0, 2.0, 9),
        call("cudaStreamSynchronize", 2030.0, 3060.0, 10),
        *(op("aten::add", 5100.0 + 90.0 * number, 80.0) for number in range(12)),
        *launched(6200.0, 6300.0, 3650.0, 11),
    ]
    path = write(tmp_path, text([note("ProfilerStep#1", 0.0, 10_000.0), *events]))
    (place,) = Evidence(TraceRecording(path)).get(TraceWaits).of("scalar")
    told = (finding("SYNC002", "other"), finding("SYNC001", "read", place.facts))
    found = gap(tmp_path, *events, findings=told)
    assert found.start == 5033.0
    assert found.key == "read"
    assert found.said.startswith("the host had waited for the device")


@pytest.mark.parametrize(("us", "told"), [(505.0, True), (495.0, False)])
def test_below_half_a_millisecond_nothing_is_said(tmp_path, us, told):
    events = [*launched(1.0, 0.0, 2000.0, 1), *launched(1990.0 + us, 2000.0 + us, 2400.0, 2)]
    assert (gap(tmp_path, *events, us=4400.0 + us) is not None) == told


@pytest.mark.parametrize(("us", "told"), [(5100.0, True), (4900.0, False)])
def test_below_a_twentieth_of_the_step_nothing_is_said(tmp_path, us, told):
    events = [*launched(1.0, 0.0, 50_000.0, 1)]
    events += launched(49_900.0 + us, 50_000.0 + us, 50_000.0 - us, 2)
    assert (gap(tmp_path, *events, us=100_000.0) is not None) == told


def test_a_device_that_is_always_busy_has_none(tmp_path):
    assert gap(tmp_path, *launched(1.0, 0.0, 10_000.0, 1)) is None


def test_what_follows_the_last_work_of_a_step_is_nobodys(tmp_path):
    assert gap(tmp_path, *launched(1.0, 0.0, 4000.0, 1)) is None


def test_a_gap_of_the_host_where_no_device_worked(tmp_path):
    events = [op("aten::linear", 0.0, 3000.0), op("aten::mul", 6000.0, 4000.0)]
    found = gap(tmp_path, *events, findings=(finding("DATA007"),), head=CPU)
    assert (found.start, found.length, found.whose, found.lanes) == (3000.0, 3000.0, "host", (0,))
    assert found.said == "no operator ran: Python, or what the trace does not show"
    assert found.key == ""


def test_a_gap_of_the_host_that_is_the_loaders(tmp_path):
    events = [note(LOAD, 100.0, 4000.0), op("aten::linear", 4200.0, 5700.0)]
    found = gap(
        tmp_path, *events, findings=(finding("NUM009", "no"), finding("DATA007", "load")), head=CPU
    )
    assert (found.start, found.whose, found.key) == (0.0, "host", "load")
    assert found.said == "the loop waited for its batch"


def test_another_threads_work_fills_the_hosts_gap(tmp_path):
    events = [op("aten::linear", 0.0, 3000.0), op("aten::mul", 6000.0, 4000.0)]
    other = op("autograd::engine::evaluate_function: MulBackward0", 3000.0, 3000.0, tid=200)
    assert gap(tmp_path, *events, other, head=CPU) is None
    assert gap(tmp_path, *events, head=CPU) is not None


@pytest.mark.parametrize(("us", "told"), [(9400.0, True), (9600.0, False)])
def test_a_step_of_which_the_trace_shows_next_to_nothing_has_none(tmp_path, us, told):
    found = gap(tmp_path, op("aten::linear", 0.0, 10_000.0 - us), head=CPU)
    assert (found is not None) == told


def test_a_gpu_whose_work_is_missing_has_no_gap_to_tell(tmp_path):
    events = [op("aten::linear", 0.0, 3000.0), op("aten::mul", 6000.0, 4000.0)]
    assert gap(tmp_path, *events) is None
