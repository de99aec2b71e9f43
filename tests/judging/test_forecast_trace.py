"""A forecast written as a trace: lengths and lines of a step, marked in every event; and that no
reader of ours takes it for a recording.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from auditor.cli import analyze, write_results
from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.extensions.forecast import step as forecasted
from auditor.extensions.forecast import step_trace as forecast_trace
from auditor.extensions.forecast.model import LOWER, UPPER
from auditor.model.forecasts import CATEGORY, FILE, MARK, Forecast, GpuForecast
from auditor.recordings.folder import Recording, RecordingWriter, write_manifest
from auditor.timeline import read, trace_files
from tests.cli.test_tensorboard_files import OPTIONS
from tests.judging.test_forecasted import GRU, PRODUCT, recorded
from tests.reports import golden_report as golden

VIEW = {"id": 1, "n": 1, "name": "aten::view", "inputs": [PRODUCT["inputs"][0]]}


def ordered(
    folder: Path, *rows: dict[str, Any], order: list[tuple[int, int]], cut: bool = False
) -> Evidence:
    """A rehearsal of two steps with these rows; each runs calls (number, line of ``t.py``; 0: none)
    in that order, the second one call less.
    """
    recorded(folder, *rows)
    writer = RecordingWriter(folder)
    sites = {line: writer.site(str(folder / "t.py"), line, "step") for _, line in order if line}
    for step in range(2):
        some = order[: len(order) - step]
        ids, at = [number for number, _ in some], [sites.get(line, -1) for _, line in some]
        row = {"pass": "loud", "step": step, "ids": ids, "at": at, "cut": cut}
        writer.add_fields("operator_order", row)
    writer.close()
    manifest = json.loads((folder / "manifest.json").read_text())
    write_manifest(folder, manifest)
    return Evidence(Recording(folder))


def made(evidence: Evidence) -> dict[str, Any] | None:
    faults: list[str] = []
    content = forecast_trace.trace(evidence, forecasted.forecast(evidence, faults), faults)
    assert faults == []
    return None if content is None else json.loads(gzip.decompress(content))


ORDER = [(0, 7), (1, 7), (0, 7), (0, 9), (0, 0), *[(0, 7)] * 15, (0, 3)]


def slices(document: dict[str, Any], thread: int) -> list[dict[str, Any]]:
    return [each for each in document["traceEvents"] if each["ph"] == "X" and each["tid"] == thread]


def test_operators_in_order_under_their_lines(tmp_path: Path) -> None:
    document = made(ordered(tmp_path, PRODUCT, VIEW, order=ORDER))
    assert document is not None
    lines = [each["name"] for each in slices(document, forecast_trace.LINES)]
    assert lines == ["t.py:7", "t.py:9", forecast_trace.NO_LINE, "t.py:7", "t.py:3"]
    kernels = slices(document, forecast_trace.GPU)
    assert {each["name"] for each in kernels} == {"aten::mm"}  # a view starts no kernel
    assert len(kernels) == len(ORDER) - 1
    for before, after in zip(kernels, kernels[1:], strict=False):
        assert after["ts"] == pytest.approx(before["ts"] + before["dur"], abs=0.01)
    assert kernels[0]["args"]["inputs"] == "[4096, 4096] [4096, 4096]"
    over = slices(document, forecast_trace.LINES)
    assert sum(each["dur"] for each in over) == pytest.approx(
        sum(each["dur"] for each in kernels), abs=0.1
    )


def test_every_event_says_that_it_is_a_forecast(tmp_path: Path) -> None:
    evidence = ordered(tmp_path, PRODUCT, order=ORDER[2:4] * 10)
    document = made(evidence)
    assert document is not None
    assert document[MARK] == "H100"
    for event in document["traceEvents"]:
        assert (event["args"]["forecast"], event["args"]["gpu"]) == (True, "H100")
        if event["ph"] == "X":
            assert event["cat"] == CATEGORY
            assert event["args"]["low_us"] < event["dur"] < event["args"]["high_us"]
            assert event["args"]["line"].startswith("t.py:")
    each = slices(document, forecast_trace.GPU)[0]
    ends = (each["dur"] * LOWER**2, each["dur"] * UPPER**2)  # those of a part
    assert (each["args"]["low_us"], each["args"]["high_us"]) == pytest.approx(ends, rel=1e-3)


def test_the_asked_gpu_is_the_one_in_it(tmp_path: Path) -> None:
    evidence = ordered(tmp_path, PRODUCT, order=ORDER[2:4] * 10)
    asked = Forecast(gpus=(GpuForecast("T4", 1e3, 9e3),))
    content = forecast_trace.trace(evidence, asked, [])
    assert content is not None
    assert json.loads(gzip.decompress(content))[MARK] == "T4"


@pytest.mark.parametrize("why", ["recurrent", "cut", "older", "no rehearsal"])
def test_where_nothing_is_said_nothing_is_written(tmp_path: Path, why: str) -> None:
    order = ORDER[2:4] * 10
    if why == "recurrent":
        evidence = ordered(tmp_path, PRODUCT, GRU, order=order)
    elif why == "older":
        evidence = recorded(tmp_path, PRODUCT)
    else:
        evidence = ordered(tmp_path, PRODUCT, order=order, cut=why == "cut")
    if why == "no rehearsal":
        manifest = {**evidence.recording.manifest, "device": "cpu"}
        write_manifest(tmp_path, manifest)
        evidence = Evidence(Recording(tmp_path))
    assert made(evidence) is None


def test_a_fault_of_ours_is_said(tmp_path: Path) -> None:
    odd = Forecast(gpus=(GpuForecast("nobody's", 1.0, 3.0),))
    faults: list[str] = []
    evidence = ordered(tmp_path, PRODUCT, order=ORDER[:1])
    assert forecast_trace.trace(evidence, odd, faults) is None
    assert [each.partition(":")[0] for each in faults] == [
        "the forecast cannot be written as a trace"
    ]


def written(folder: Path) -> Path:
    """The run's folder with what it leaves."""
    evidence = ordered(folder / "recording", PRODUCT, order=ORDER[2:4] * 10)
    forecast = forecasted.forecast(evidence, [])
    report = replace(golden.silent_report(), forecast=forecast)
    write_results.write(report, evidence, folder, ())
    return folder / FILE


def test_it_lies_beside_the_report_and_goes_with_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert json.loads(gzip.decompress(path.read_bytes()))[MARK] == "H100"
    evidence = Evidence(Recording(tmp_path / "recording"))
    write_results.write(golden.silent_report(), evidence, tmp_path, ())
    assert not path.exists()


def test_no_reader_takes_it_for_a_recording(tmp_path: Path) -> None:
    path = written(tmp_path / "run")
    said = "is a forecast for H100, no recording: nothing in it was measured"
    with pytest.raises(AuditProblem, match=said):
        analyze.analyze(paths=(str(path),), out=str(tmp_path / "out"), **OPTIONS)
    assert not (tmp_path / "out").exists()
    document = json.loads(gzip.decompress(path.read_bytes()))
    again = tmp_path / "again.json"  # as another program would write it: no keys of ours
    again.write_text(json.dumps({"traceEvents": document["traceEvents"]}))
    with pytest.raises(AuditProblem, match="is a forecast, no recording"):
        read(again)
    with pytest.raises(AuditProblem, match="holds no .json"):
        trace_files(_alone(path, tmp_path / "alone"))


def _alone(path: Path, folder: Path) -> Path:
    folder.mkdir()
    (folder / FILE).write_bytes(path.read_bytes())
    return folder
