"""Traces of the null device, read and judged by us as any other."""

from __future__ import annotations

import json
import re

import pytest

from auditor.timeline import Timeline
from tests.cuda.profiled import STEPS
from tests.cuda.profiler_runs import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Run(tmp_path_factory.mktemp("read"), "plain", "scheduled")


@pytest.mark.parametrize("name", ["first", "second", "cycle0", "cycle1"])
def test_a_trace_is_read(run, name):
    trace = run.trace(name)
    line = Timeline.of(trace.path)
    assert line.trace.warnings == ()
    assert line.trace.events == sum(event["ph"] != "" for event in trace.events)
    steps = STEPS if name in {"first", "second"} else 3
    assert len(line.optimizer.rows) == steps
    assert line.scalar_reads.on_device.sum() == steps, "each step reads its loss from the device"
    line.compute()


@pytest.fixture(scope="module", params=["first", "cycle1"])
def report(run, audit, request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    result = audit(
        "analyze", str(run.trace(request.param).path), "--out", str(folder / "out"), cwd=folder
    )
    assert result.returncode == 0, result.stderr
    return json.loads((folder / "out" / "report.json").read_text()), result.stdout


def test_a_trace_is_judged(report):
    found, _ = report
    codes = {finding["code"] for finding in found["findings"]}
    assert {"SYNC001", "SYNC006"} <= codes, (
        "the loss is read, and batches come from pageable memory"
    )
    assert not [verdict for verdict in found["verdicts"] if verdict["status"] == "failed"]


def test_no_time_is_made_of_it(report):
    """Neither a price, nor the use of the device, nor a step's time; and what the trace is stands
    above all.
    """
    found, printed = report
    assert [finding["lost_us_per_step"] for finding in found["findings"]] == [None] * len(
        found["findings"]
    )
    assert (found["device_time"], found["parts"], found["series"]) == (None, None, [])
    assert found["run"]["step_us"] is None
    assert [caution for caution in found["cautions"] if "null device" in caution]
    reasons = {
        verdict["code"]: verdict["reason"]
        for verdict in found["verdicts"]
        if verdict["status"] == "skipped"
    }
    for code in ("KERN001", "KERN003", "AMP001", "DIST003", "DATA008"):
        assert "null device" in reasons[code], code
    assert not re.search(r"\d\s?(us|ms)\b", printed), printed


def test_the_mark_is_in_each_trace(run):
    for name in ("first", "second", "cycle0", "cycle1"):
        assert Timeline.of(run.trace(name).path).trace.info.null_device
