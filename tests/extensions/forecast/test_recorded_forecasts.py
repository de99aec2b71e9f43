"""Recorded traces beside what is predicted of them (benchmarks/forecast_recordings.py reads them).

Those of the larger collection took part in the fit, so they show that counting and reading still
work, not how good a prediction is: that is in docs/forecast.md, by groups left out.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
from pathlib import Path

import pytest

from auditor.extensions.forecast.coefficients import coefficients
from auditor.extensions.forecast.forecasting import forecast
from auditor.extensions.forecast.predicting import predicted_us, roofline_us
from tests.recorded_traces import BESIDE

PATH = Path(__file__).resolve().parents[3] / "benchmarks" / "forecast_recordings.py"


def reader():
    spec = importlib.util.spec_from_file_location("forecast_recordings", PATH)
    assert spec is not None and spec.loader is not None
    module = sys.modules["forecast_recordings"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


READER = reader()


class Kineto:
    """A trace as Kineto writes it: each operator starts one kernel of so many us."""

    def __init__(self, gpu: str) -> None:
        self.gpu, self.events, self.at = gpu, [], 0

    def run(self, name, dims, us, *, kernel="vectorized_elementwise_kernel", types="", values=()):
        number = len(self.events)
        types = [types or "float"] * len(dims)
        shapes = {"Input Dims": dims, "Input type": types, "Concrete Inputs": list(values)}
        outer = self.span("cpu_op", name.replace("aten::", "aten::outer_"), 100, {})
        inner = self.span("cpu_op", name, 80, shapes)
        launch = self.span("cuda_runtime", "cudaLaunchKernel", 10, {"correlation": number})
        done = self.span("kernel", kernel, us, {"correlation": number, "stream": 7})
        outer["ts"], inner["ts"], launch["ts"] = self.at, self.at + 5, self.at + 20
        done["tid"] = "stream 7"
        self.at += 200

    def span(self, category, name, us, arguments):
        event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": self.at}
        self.events.append({**event, "dur": us, "args": arguments})
        return self.events[-1]

    def write(self, folder: Path):
        folder.mkdir()
        path = folder / "trace.json"
        device = {"id": 0, "name": self.gpu}
        path.write_text(json.dumps({"deviceProperties": [device], "traceEvents": self.events}))
        return READER.recording(path)


def test_a_trace_is_read_and_predicted(tmp_path) -> None:
    trace = Kineto("NVIDIA H100 80GB HBM3")
    half = "c10::BFloat16"
    for _ in range(4):
        # 2 * 8192^3 FLOPs at 989 TFLOP/s are 1111 us; H100s reach about 80% of it
        gemm = "nvjet_tst_256x128_64x4_h_bz_coopA_NTN"
        trace.run("aten::mm", [[8192, 8192], [8192, 8192]], 1390.0, types=half, kernel=gemm)
        # 3 * 268 MB at 3.35 TB/s are 240 us
        trace.run("aten::add", [[8192, 8192], [8192, 8192]], 265.0)
    found = trace.write(tmp_path / "made")
    assert found.sheet.key == "H100"
    assert [row.name for row in found.rows] == ["aten::mm", "aten::add"] * 4
    assert [row.us for row in found.rows] == [1390.0, 265.0] * 4
    assert found.loose_us == 0
    assert {row.counts.arithmetic for row in found.rows if row.counts.flops} == {"16-bit"}
    told = forecast([row.call for row in found.rows], found.sheet.key)
    assert told.lower_us is not None and told.upper_us is not None
    assert told.lower_us < 4 * (1390 + 265) < told.upper_us


def test_collectives_and_kernels_of_nobody_stand_apart(tmp_path) -> None:
    trace = Kineto("NVIDIA H100 80GB HBM3")
    trace.run("aten::add", [[64, 64], [64, 64]], 3.0)
    trace.run("c10d::allreduce_", [[64, 64]], 50.0, kernel="ncclDevKernel_AllReduce")
    trace.span("kernel", "memset_kernel", 7.0, {"correlation": 999})
    found = trace.write(tmp_path / "made")
    assert [row.name for row in found.rows] == ["aten::add"]
    assert found.collective_us == 50.0
    assert found.loose_us == 7.0


def test_a_convolution_without_strides_takes_its_output_from_the_next_operator(tmp_path) -> None:
    trace = Kineto("Tesla V100-DGXS-32GB")
    trace.run("aten::cudnn_convolution", [[8, 3, 64, 64], [16, 3, 3, 3]], 30.0)
    trace.run("aten::cudnn_batch_norm", [[8, 16, 32, 32], [16]], 10.0)
    found = trace.write(tmp_path / "made")
    assert found.rows[0].counts.kind == "conv"
    assert found.rows[0].counts.flops == 2 * (8 * 16 * 32 * 32) * (3 * 9)


@pytest.mark.parametrize("gpu", ["", "NVIDIA GeForce GTX 970"])
def test_a_gpu_that_is_not_known_is_passed_over(tmp_path, gpu) -> None:
    trace = Kineto(gpu)
    trace.run("aten::add", [[64, 64], [64, 64]], 3.0)
    assert trace.write(tmp_path / "made") is None


def test_a_file_that_is_no_trace_is_passed_over(tmp_path) -> None:
    path = tmp_path / "broken.json"
    path.write_text("{")
    assert READER.recording(path) is None


BESIDE_DATA = BESIDE / "data"
SMALL = (
    "hourany_nw8_bs2056",
    "part_bs8",
    "sam_amg_early",
    "t4_fp32",
    "tracelens_h100_qwen",
    "tracelens_h100_timesformer",
    "tracelens_mi300_resnet_act_checkpoint",
    "tracelens_mi300_torch_compile_triton",
)
"""Recordings of a millisecond or more that are read quickly."""
beside = pytest.mark.skipif(not BESIDE_DATA.is_dir(), reason="no larger collection beside this")


@pytest.fixture(scope="module")
def recorded():
    return [
        found
        for name in SMALL
        for found in READER.recordings(READER.traces_under(BESIDE_DATA / name))
    ]


def rows_of(found):
    rows = [row for row in found.rows if row.counts and row.counts.kernels]
    return rows, [row.counts for row in rows]


@beside
def test_recorded_calls_are_seldom_faster_than_the_data_sheet(recorded) -> None:
    """Where they are, something is counted that was not moved or computed."""
    over = whole = 0.0
    for found in recorded:
        rows, counts = rows_of(found)
        for row, least in zip(rows, roofline_us(counts, found.sheet), strict=True):
            over += max(least - 1.05 * row.us, 0.0)
            whole += row.us
    assert whole > 5e5
    assert over < 0.01 * whole


@beside
def test_recorded_busy_times_are_near_the_predicted_ones(recorded) -> None:
    ratios = []
    for found in recorded:
        rows, counts = rows_of(found)
        us = sum(row.us for row in rows)
        ratios.append(predicted_us(counts, found.sheet, coefficients()).sum() / us)
    assert len(ratios) == len(SMALL)
    assert 0.75 < statistics.median(ratios) < 1.3
    assert all(1 / 3 < each < 3 for each in ratios)
