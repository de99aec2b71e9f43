"""The rehearsal beside the last passes of the main run, with real processes."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest
import torch

from auditor import machine

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available() or machine.processors() < 2,
    reason="a GPU is not rehearsed, and one processor makes one run at a time",
)

TRAINER = """
    import pathlib, time
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    n = 0

    def step():
        global n
        n += 1
        optimizer.zero_grad()
        loss = model(torch.ones(2, 8, device=device)).square().mean()
        loss.item()
        loss.backward()
        optimizer.step()
        print("at", time.monotonic(), device.type, flush=True)
        {more}
"""
OUTSIDE = "pathlib.Path({path!r}).open('a').write(device.type + '\\n')"
SLOW = "time.sleep(0.5 if device.type == 'cuda' else 1.5 if n > 20 else 0.0)"


def written(folder, more):
    (folder / "trainer.py").write_text(textwrap.dedent(TRAINER.format(more=more)))


def audited(audit, folder, more):
    written(folder, more)
    words = "run trainer.py:step --steps 8 --warmup 2 --out out"
    done = audit(words, cwd=folder, timeout=400)
    assert done.returncode in (0, 1), done.stderr
    return json.loads((folder / "out" / "report.json").read_text()), done


def moments(folder, name):
    lines = (folder / "out" / "recording" / name / "output.txt").read_text().splitlines()
    return [float(line.split()[1]) for line in lines if line.startswith("at ")]


def found(report):
    return sorted((each["code"], each["site"]["line"]) for each in report["findings"])


def test_it_is_made_beside_and_says_the_same_as_in_its_turn(audit, tmp_path):
    for name in ("beside", "alone"):
        (tmp_path / name).mkdir()
    more = "time.sleep(0.3 if n > 20 and device.type == 'cpu' else 0.0)"
    report, _ = audited(audit, tmp_path / "beside", more)
    main, rehearsed = (moments(tmp_path / "beside", each) for each in ("", "rehearsal"))
    assert rehearsed[0] < main[-1]
    assert report["warnings"] == []
    affinity = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(affinity)})
    try:
        alone, _ = audited(audit, tmp_path / "alone", more)
    finally:
        os.sched_setaffinity(0, affinity)
    assert found(report) == found(alone)
    for path in (tmp_path / "beside" / "out").rglob("*.json*"):
        if path.suffix != ".gz":
            assert b"/beside/out/recording/beside" not in path.read_bytes(), path


def test_one_that_would_write_what_the_main_run_writes_is_made_in_its_turn(audit, tmp_path):
    (tmp_path / "project").mkdir()
    log = tmp_path / "log.txt"
    report, _ = audited(audit, tmp_path / "project", OUTSIDE.format(path=str(log)))
    main, rehearsed = (moments(tmp_path / "project", each) for each in ("", "rehearsal"))
    assert rehearsed[0] > main[-1]
    assert log.read_text().split() == ["cpu"] * len(main) + ["cuda"] * len(rehearsed)
    assert report["warnings"] == []


def test_ctrl_c_ends_both(tmp_path):
    written(tmp_path, SLOW)
    code = "from auditor.cli.main import main; main()"
    words = "run trainer.py:step --steps 8 --warmup 2 --out out".split()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    rows, until = tmp_path / "out" / "recording" / "beside" / "steps.jsonl", time.monotonic() + 120
    while not (rows.exists() and rows.read_text().count("\n") >= 2) and time.monotonic() < until:
        time.sleep(0.1)
    assert rows.exists()
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    assert json.loads((tmp_path / "out" / "report.json").read_text())["run"]["outcome"] == (
        "interrupted"
    )
    assert not rows.parent.exists()
