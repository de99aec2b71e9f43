"""``audit run`` on the null device too: beside the shadow, at the cost of itself alone."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from auditor import null_device
from auditor.evidence.recorded.null_run import NullRun, null_run
from auditor.evidence.table import Evidence
from auditor.judging import null_beside
from auditor.recordings.folder import Recording
from auditor.recordings.schema.run import StepRow
from auditor.runs import child_process
from auditor.runs import null_run as runs
from auditor.runs.course import Course, Made
from auditor.runs.plan import Audit, Plan
from tests.cuda.conftest import ROOT

PROGRAM = """\
import os, time
import torch

ON_NULL = os.environ.get("NULLDEVICE_GPU")
MODE = os.environ.get("MODE") if ON_NULL else ""
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Dropout(0.1), torch.nn.Linear(256, 1)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
x = torch.ones(32, 64, device=device)
kept, taken = [], 0


def step():
    global taken
    taken += 1
    if MODE == "dies" and taken > 4:
        os._exit(3)
    if MODE == "hangs" and taken > 4:
        time.sleep(600)
    optimizer.zero_grad()
    loss = (model(x) - 1).square().mean()
    loss.backward()
    if loss.item() > 1e-9:
        kept.append(torch.ones(1 << 20, device=device))
    if os.environ.get("MODE") == "parts" and loss.detach().cpu().numpy() > 1e-9:
        loss = loss * 2
    optimizer.step()
"""

PEAK = """
import os, sys; sys.path.insert(0, ".")
import torch, program
peaks = []
for _ in range(11):
    program.step()
    peaks.append([torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()])
print(peaks, flush=True)
os._exit(0)
"""


def silent(*_: object) -> None:
    """No progress is shown."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """A rehearsal of the program, to which runs on the null device are added."""
    folder = tmp_path_factory.mktemp("rehearsed")
    (folder / "program.py").write_text(PROGRAM)
    here = os.getcwd()
    os.chdir(folder)
    try:
        child_process.record_once(plan(folder), None, silent, silent)
    finally:
        os.chdir(here)
    return folder


def asked(folder: Path) -> Audit:
    run = Plan("program:step", (), 12, 2, "auto", str(folder / "recording"), ())
    return runs.prepared(Audit(run, ("steps", "reads"), ("steps", "owners")))


def plan(folder: Path) -> Plan:
    audit = asked(folder)
    return replace(audit.run, parts=audit.rehearsed).on_shadow(12)


Beside = Callable[[str], Recording]


@pytest.fixture
def beside(rehearsed, monkeypatch):
    """Runs the rehearsed program on the null device in a mode of it."""

    def run(mode: str) -> Recording:
        monkeypatch.chdir(rehearsed)
        monkeypatch.setenv("MODE", mode)
        recording = Recording(rehearsed / "recording")
        recording.manifest["warnings"] = []
        made = [Made(plan(rehearsed), recording)]
        runs.beside(Course(asked(rehearsed), None, silent, silent, made))
        return Recording(rehearsed / "recording")

    return run


def judged(recording: Recording) -> NullRun:
    run = null_run(Evidence(recording))
    assert run is not None
    return run


def test_it_goes_the_shadows_way_by_the_values_that_it_is_told(beside, rehearsed):
    recording = beside("")
    run = judged(recording)
    assert not recording.manifest["warnings"]
    assert (run.steps, run.parting, run.sized, run.compared) == (9, None, (), 12)
    assert run.memory is not None and run.answered == run.reads == 12  # `loss.item() > 1e-9` too
    read = next(asked for asked in run.lines.values() if "loss.item()" in asked.site.text)
    assert read.waits == 9
    assert read.calls == {"cudaStreamSynchronize", "cudaHostAlloc"}  # the first one allocates
    assert run.busiest is not None and run.busiest.site.text == "loss.backward()"
    beneath = run.evidence.recording
    assert beneath.device.null and beneath.snapshot is not None
    # what watches it takes no memory: bytes are those of the program without an audit
    held = [[row.allocated, row.peak_allocated] for row in beneath.rows(StepRow)]
    assert held[:11] == alone(rehearsed)


def alone(folder: Path) -> list[list[int]]:
    """Bytes allocated and the peak after each of the plain program's first steps."""
    place = folder / "plain"
    place.mkdir()
    (place / "program.py").write_text(PROGRAM.replace("loss.item() > 1e-9", "True"))
    done = subprocess.run(
        [sys.executable, "-c", PEAK],
        cwd=place,
        env={**os.environ, **null_device.environment("H100"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found: list[list[int]] = json.loads(done.stdout)
    return found


def test_a_branch_on_a_value_that_it_was_not_told_is_noticed(place, monkeypatch):
    monkeypatch.setenv("MODE", "parts")
    made = Made(plan(place), child_process.record_once(plan(place), None, silent, silent))
    runs.beside(Course(asked(place), None, silent, silent, [made]))
    evidence = Evidence(Recording(place / "recording"))
    run = judged(evidence.recording)
    assert run.memory is None and run.parting is not None and run.parting.step == 0
    assert run.parting.shadow is not None and run.parting.shadow.text == "loss = loss * 2"
    (said,) = null_beside.warnings(evidence)
    assert "took another path in step 0" in said


@pytest.mark.parametrize("mode", ["dies", "hangs"])
def test_it_costs_only_itself(beside, rehearsed, monkeypatch, mode):
    monkeypatch.setattr(runs, "PATIENCE_S", 12.0)
    monkeypatch.setattr(runs, "PATIENCE", 0.0)
    began = time.monotonic()
    recording = beside(mode)
    assert time.monotonic() - began < 60
    (said,) = recording.manifest["warnings"]
    assert "on the null device" in said and "ended early and is not judged" in said
    assert recording.manifest["outcome"] == "completed"
    assert recording.inside("null") is None and null_run(Evidence(recording)) is None


def test_audit_run_says_what_each_device_saw(place):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "auditor", "run", "program:step", "--device", "null"),
            *("--gpu", "T4", "--steps", "3", "--warmup", "0", "--out", "out"),
            *("--select", "MEM003,SYNC001"),
        ],
        env={**null_device.without(os.environ), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert "on a null device (torch's own CUDA code) as if on a Tesla T4" in shown
    report = json.loads((place / "out" / "report.json").read_text())
    seen = {found["code"]: found for found in report["findings"]}
    wanted = {"MEM003": "null", "SYNC001": "rehearsal"}
    assert {code: found["seen_on"] for code, found in seen.items()} == wanted
    assert seen["MEM003"]["lost_bytes"] == pytest.approx(4 << 20, rel=0.01)
    assert seen["SYNC001"]["facts"][-1][0] == "torch's own CUDA code"
    assert (report["run"]["device"], report["run"]["step_us"]["n"]) == ("cpu", 3)


def test_a_run_that_a_user_starts_on_the_null_device_is_known_as_one(place, inside):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "auditor", "run", "program:step", "--steps", "3"),
            *("--warmup", "0", "--out", "out", "--select", "MEM003,SYNC001,NUM014"),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((place / "out" / "report.json").read_text())
    assert (report["run"]["device"], report["run"]["step_us"]) == ("null", None)
    assert {found["seen_on"] for found in report["findings"]} == {"null"}
    verdicts = {verdict["code"]: verdict["status"] for verdict in report["verdicts"]}
    assert verdicts["NUM014"] == "skipped"
    assert "this ran on a null device" in " ".join(done.stdout.split())
