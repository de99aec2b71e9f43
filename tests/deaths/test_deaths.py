"""However a target dies, and whatever happens to the audit itself: a report or one clear sentence, and nothing left running.

The quick ones run in ``make test``, all of them by ``make deaths``.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from .programs import DEATHS, Death, source

ROOT = Path(__file__).resolve().parents[2]
MARK = "AUDIT_DEATH"
"""Environment variable that all processes of one audit inherit: what still has it afterwards was left behind."""

LEFT_S = 3.0
"""How long anything of a target may outlive the audit."""

OWN_FAULTS = ("bug of the auditor", "Exception ignored in", f'File "{ROOT / "auditor"}')
"""What the audit's own words never hold."""


def command(death: Death) -> list[str]:
    options = ["--steps", "8", "--warmup", "2", "--device", "cpu", *death.options]
    if "--out" not in options:
        options += ["--out", "out"]
    return [sys.executable, "-c", "from auditor.cli import main; main()", "run", "trainer:step", *options]


def start(death: Death, folder: Path, mark: str) -> subprocess.Popen[bytes]:
    words = shlex.join(command(death))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1", MARK: mark}
    piped = f"set -o pipefail; {words} {death.shell}" if death.shell else f"exec {words}"
    return subprocess.Popen(["bash", "-c", piped], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


# -- what is done to the audit -----------------------------------------------------------------------------------------


def _recording(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the step has come to its bad one."""
    rows = folder / "out" / "recording" / "steps.jsonl"
    for _ in range(900):
        if process.poll() is not None or (rows.exists() and rows.read_bytes().count(b"\n") >= 9):
            break
        time.sleep(0.1)
    time.sleep(0.5)


def _signals(names: str) -> Callable[[Path, subprocess.Popen[bytes]], None]:
    def send(folder: Path, process: subprocess.Popen[bytes]) -> None:
        _recording(folder, process)
        for name in names.split():
            if process.poll() is None:
                process.send_signal(getattr(signal, name))
            time.sleep(0.3)

    return send


def _while_judging(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """The moment at which the recording child has ended and the report is not written yet."""
    manifest = folder / "out" / "recording" / "manifest.json"
    for _ in range(1800):
        if process.poll() is not None or (manifest.exists() and b'"finished": true' in manifest.read_bytes()):
            break
        time.sleep(0.05)
    time.sleep(0.2)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)


def _two_audits(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """A second audit into the same folder: one of both is refused, and neither mixes its rows with the other's."""
    other = start(DEATHS["two_audits"], folder, "other")
    _, said = other.communicate(timeout=200)
    process.wait(timeout=200)
    assert sorted((other.returncode, process.returncode)) == [0, 2], said.decode()
    process.returncode = 2


OUTSIDE: dict[str, Callable[[Path, subprocess.Popen[bytes]], None]] = {
    "SIGINT": _signals("SIGINT"),
    "SIGTERM": _signals("SIGTERM"),
    "SIGHUP": _signals("SIGHUP"),
    "SIGINT SIGINT": _signals("SIGINT SIGINT"),
    "SIGKILL": _signals("SIGKILL"),
    "SIGTERM while judging": _while_judging,
    "two audits": _two_audits,
}


# -- what is left ------------------------------------------------------------------------------------------------------


def left(mark: str) -> list[psutil.Process]:
    """Processes that still have the mark, a moment after the end."""
    last = time.monotonic() + LEFT_S
    while found := [each for each in psutil.process_iter() if _is_of(each, mark)]:
        if time.monotonic() > last:
            break
        time.sleep(0.1)
    return found


def _is_of(process: psutil.Process, mark: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark
    except (psutil.Error, OSError):
        return False


def folder_for(death: Death, tmp_path: Path) -> Path:
    folder = tmp_path
    if death.outside == "strange_folder":
        folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
        folder.mkdir()
    if death.outside == "own report":
        (folder / "out").mkdir()
        (folder / "out" / "report.json").write_text('{"mine": 1}')
    (folder / "trainer.py").write_text(source(death))
    return folder


def cases() -> list[object]:
    return [pytest.param(name, marks=() if death.quick else pytest.mark.slow) for name, death in DEATHS.items()]


@pytest.mark.skipif(sys.platform != "linux", reason="signals, limits and /proc of Linux")
@pytest.mark.parametrize("name", cases())
def test_a_death_ends_in_a_report_or_a_sentence(name: str, tmp_path: Path) -> None:
    death = DEATHS[name]
    folder = folder_for(death, tmp_path)
    mark = f"{os.getpid()}-{name}"
    process = start(death, folder, mark)
    try:
        if death.outside in OUTSIDE:
            OUTSIDE[death.outside](folder, process)
        out, err = process.communicate(timeout=240)
    finally:
        remaining = left(mark)
        names = [" ".join(each.cmdline())[:200] for each in remaining]
        for each in remaining:
            each.kill()
    said = (out + err).decode("utf-8", "replace")
    endings = {code: outcomes for code, outcomes in (death.end, *death.ends)}
    assert process.returncode in endings, said[-3000:]
    if name not in MAY_STAY:
        assert names == [], "left behind"
    for fault in OWN_FAULTS:
        assert fault not in own_words(said), said[-3000:]
    report = folder / "out" / "report.json"
    outcomes = [outcome for code, outcomes in (death.end, *death.ends) if code == process.returncode for outcome in outcomes]
    if not outcomes:
        assert not report.is_file() or name in ("own_report", "two_audits")
        words = said
    else:
        written = json.loads(report.read_text())
        assert written["run"]["outcome"] in outcomes
        assert (folder / "out" / "report.html").stat().st_size > 5000
        assert all(row["us"] >= 0 for row in rows(folder))
        words = said + json.dumps(written, ensure_ascii=False)
    for word in death.says:
        assert word in words, said[-3000:]
    if name == "own_report":
        assert report.read_text() == '{"mine": 1}'


MAY_STAY = frozenset({"leaves_session"})
"""A process that made itself the leader of a session asked to outlive us: it is named, and not ended."""


def rows(folder: Path) -> list[dict[str, float]]:
    """Whole steps; none where the first one failed."""
    path = folder / "out" / "recording" / "steps.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def own_words(said: str) -> str:
    """Without what the target itself prints: exceptions in its threads, atexit handlers and ``__del__``; and the interpreter's last words."""
    return "" if any(word in said for word in TARGETS_OWN) else said


TARGETS_OWN = (
    "Pool.__del__",
    "Fatal Python error",
    "in del",
    "Exception in thread",
    "Exception ignored in atexit",
    "Error in atexit",
    "Error in sys.excepthook",
)
