"""Traces of the null device, read and judged by us as any other."""

import json
import os
import re
import subprocess
import sys

import pytest

from auditor import null_device
from auditor.timeline import Timeline, totals

STEPS = 3
PROGRAM = f"""
import os
import torch
from torch.profiler import profile, schedule

model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))).cuda()
optimizer = torch.optim.AdamW(model.parameters())


def step():
    loss = model(torch.randn(160, 64).cuda()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


step()
with profile() as plain:
    for _ in range({STEPS}):
        step()
plain.export_chrome_trace("plain.json")
plan = schedule(wait=1, warmup=1, active={STEPS})
shapes = dict(record_shapes=True, profile_memory=True, with_stack=True)
written = lambda each: each.export_chrome_trace("scheduled.json")
with profile(schedule=plan, on_trace_ready=written, **shapes) as scheduled:
    for _ in range({STEPS} + 3):
        step()
        scheduled.step()
types = {{"fp32": 0, "tf32": 0, "bf16": torch.bfloat16, "fp16": torch.float16, "fp64": torch.float64}}
for name, dtype in types.items():
    torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    a = torch.ones(64, 64, device="cuda", dtype=dtype or torch.float32)
    with profile() as product:
        a @ a
    product.export_chrome_trace(name + ".json")
os._exit(0)
"""
NAMES = ("plain", "scheduled")


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """A small training under torch.profiler, and products in several arithmetics."""
    folder = tmp_path_factory.mktemp("read")
    surroundings = {**os.environ, **null_device.environment("H100"), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=folder, env=surroundings, timeout=240, check=True
    )
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_is_read(traces, name):
    path = traces / f"{name}.json"
    line = Timeline.of(path)
    assert line.trace.warnings == ()
    assert line.trace.info.null_device
    written = json.loads(path.read_text())["traceEvents"]
    assert line.trace.events == sum(event["ph"] != "" for event in written)
    assert len(line.optimizer.rows) == STEPS
    found = line.waits
    reads = [found.cause_name(row, line.trace, line.tree) for row in range(len(found.call))]
    assert reads.count("item") == STEPS, "each step reads its loss from the device"
    line.compute()


HALVES = dict.fromkeys(("bf16", "fp16"), totals.HALF)
ARITHMETICS = {"fp32": totals.FP32, "tf32": totals.TF32, "fp64": totals.FP64, **HALVES}


@pytest.mark.parametrize("name", ARITHMETICS)
def test_a_product_tells_its_arithmetic(traces, name):
    events = json.loads((traces / f"{name}.json").read_text())["traceEvents"]
    kernels = [event["name"] for event in events if event.get("cat") == "kernel"]
    found = [totals.arithmetic(kernel) for kernel in kernels]
    assert [each for each in found if each is not None] == [ARITHMETICS[name]]


@pytest.fixture(scope="module", params=NAMES)
def report(traces, audit, request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    trace = str(traces / f"{request.param}.json")
    result = audit("analyze", trace, "--out", str(folder / "out"), cwd=folder)
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
    """Neither a price, nor the use of the device, nor a step's time."""
    found, printed = report
    assert {finding["lost_us_per_step"] for finding in found["findings"]} <= {None}
    assert (found["device_time"], found["parts"], found["series"]) == (None, None, [])
    assert found["run"]["step_us"] is None
    assert [caution for caution in found["cautions"] if "null device" in caution]
    skipped = [verdict for verdict in found["verdicts"] if verdict["status"] == "skipped"]
    reasons = {verdict["code"]: verdict["reason"] for verdict in skipped}
    for code in ("KERN001", "KERN003", "AMP001", "DIST003", "DATA008"):
        assert "null device" in reasons[code], code
    assert not re.search(r"\d\s?(us|ms)\b", printed), printed
