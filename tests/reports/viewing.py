"""Runs to look at, and ``audit view`` as a process of its own."""

import contextlib
import gzip
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from auditor.reports import renderer

from auditor.model import Finding, Site
from tests.reports import golden_report as golden
from tests.timeline.kineto import frame, op, text, training

ROOT = Path(__file__).resolve().parents[2]


def write_run(folder, report=None, trace=None):
    """A run's folder as ``audit run`` leaves it, as far as it is looked at."""
    folder.mkdir(parents=True)
    for name, file in (("json", "report.json"), ("html", "report.html")):
        content = renderer(name).render(report or golden.rich_report())
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    if trace is not None:
        (folder / "recording").mkdir()
        (folder / "recording" / "trace.json.gz").write_bytes(gzip.compress(trace.encode()))
    return folder


def plain_trace():
    """Three steps with one ``item`` each."""
    return text(training(3))


def framed_trace():
    """One ``item`` more in each step, and the frame of golden's first finding around it."""
    events = training(3)
    for number in (1, 2, 3):
        start = 1000.0 * number
        around = frame(f"{golden.TRAINER}(142): step", start + 710, 80)
        events += [op("aten::item", start + 720, 50), around]
    return text(events)


def two_lines():
    """Two lines of one function that read once a step, in a trace without frames."""
    report = golden.rich_report()
    said = {"code": "SYNC001", "per_step": 1.0}
    late, early = (
        Finding(Site(golden.TRAINER, line, "Trainer.step"), "reads", key=f"line {line}", **said)
        for line in (20, 10)
    )
    reads = [op("aten::item", 1000.0 * number + 720, 50) for number in (1, 2, 3)]
    return replace(report, findings=(late, early)), text([*training(3), *reads])


@contextlib.contextmanager
def viewing(*words, cwd):
    """``audit view ...`` and the address that it printed; its group is gone at the end."""
    code = "from auditor.cli.main import main; main()"
    command = [sys.executable, "-c", code, "view", *words, "--no-browser"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=cwd, env=env, **pipes, start_new_session=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), process.communicate(timeout=20)
        yield process, url
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=30)
        left = survivors(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
    assert not left, "processes outlived audit view"


def survivors(group):
    """A process of the group is still there after some seconds: some go a moment later."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True
