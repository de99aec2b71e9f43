"""However a target dies, and whatever happens to the audit itself: a report or one clear sentence,
and nothing left running.

The quick ones run in ``make test-full``, all of them by ``make deaths``.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from .programs import DEATHS, Death, source

ROOT = Path(__file__).resolve().parents[2]
MARK = "AUDIT_DEATH"
"""Environment variable that all processes of one audit inherit: what still has it afterwards was
left behind.
"""

LEFT_S = 20.0
"""How long is looked for what outlives the audit. It ends within a moment, but on a busy machine
nobody runs in that moment.
"""

WAITS_S = 240.0
"""A guard against a test that hangs: how long an audit may take to come where it is waited for, or
to end.
"""

OWN_FAULTS = ("bug of the auditor", "Exception ignored in", f'File "{ROOT / "auditor"}')
"""What the audit's own words never hold."""


MAIN = "from auditor.cli.main import main; main()"

HELD = """
import os, time
from auditor.cli import run

inner = run.{module}.{function}

def held(*given):
    open("waiting", "w").close()
    while not os.path.exists("go"):
        time.sleep(0.05)
    return inner(*given)

run.{module}.{function} = held
{main}
"""
"""An audit that waits before it records or judges, as a target does in its step."""

HOLDS = {"two audits": ("stages", "record"), "SIGTERM while judging": ("write_results", "judge")}

IGNORED = {"in the background": signal.SIGINT, "nohup": signal.SIGHUP}
"""What a shell makes the processes ignore that it starts so."""


def command(death: Death) -> list[str]:
    options = ["--steps", "8", "--warmup", "2", "--device", "cpu", *death.options]
    if "--out" not in options:
        options += ["--out", "out"]
    module, function = HOLDS.get(death.outside, ("", ""))
    code = HELD.format(module=module, function=function, main=MAIN) if module else MAIN
    return [sys.executable, "-c", code, "run", "trainer:step", *options]


def start(death: Death, folder: Path, mark: str) -> subprocess.Popen[bytes]:
    """Signals are as in a shell that somebody types in: tests may be run by ``nohup``, or in the
    background.
    """
    words = shlex.join(command(death))
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
        MARK: mark,
    }
    piped = f"set -o pipefail; {words} {death.shell}" if death.shell else f"exec {words}"

    def signals() -> None:
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with suppress(OSError, ValueError):  # the C library's own
                signal.signal(number, signal.SIG_DFL)
        if death.outside in IGNORED:
            signal.signal(IGNORED[death.outside], signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return subprocess.Popen(
        ["bash", "-c", piped],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=signals,
    )


# -- what is done to the audit ---------------------------------------------------------------------


def _until(process: subprocess.Popen[bytes], *files: Path) -> None:
    """Wait until the files are there, which say where the audit or its target stands; a process
    that has ended makes none.
    """
    last = time.monotonic() + WAITS_S
    while process.poll() is None and not all(file.exists() for file in files):
        assert time.monotonic() < last, f"it never made {', '.join(file.name for file in files)}"
        time.sleep(0.05)


def _in_its_step(*names: str) -> Callable[[Path, subprocess.Popen[bytes]], None]:
    """Send a signal while the target waits in its bad step; another one when the target says that
    it was asked to end.
    """

    def send(folder: Path, process: subprocess.Popen[bytes]) -> None:
        for name, said in zip(names, ((), ("asked",)), strict=False):
            _until(process, folder / "waiting", *(folder / each for each in said))
            process.send_signal(getattr(signal, name))

    return send


def _no_hang_up(folder: Path, process: subprocess.Popen[bytes]) -> None:
    _in_its_step("SIGHUP")(folder, process)
    (folder / "go").touch()


def _while_judging(folder: Path, process: subprocess.Popen[bytes]) -> None:
    _until(process, folder / "waiting")
    process.send_signal(signal.SIGTERM)
    (folder / "go").touch()


def _second(sentence: str) -> Callable[[Path, subprocess.Popen[bytes]], None]:
    """A second audit into the same folder is refused while the first one waits, which does not hear
    of it.
    """

    def begin(folder: Path, process: subprocess.Popen[bytes]) -> None:
        _until(process, folder / "waiting")
        other = start(Death(), folder, f"{os.getpid()}-second")
        _, said = other.communicate(timeout=WAITS_S)
        (folder / "go").touch()
        assert other.returncode == 2 and sentence in said.decode(), said.decode()

    return begin


OUTSIDE: dict[str, Callable[[Path, subprocess.Popen[bytes]], None]] = {
    "SIGTERM": _in_its_step("SIGTERM"),
    "SIGHUP": _in_its_step("SIGHUP"),
    "SIGINT SIGINT": _in_its_step("SIGINT", "SIGINT"),
    "SIGTERM while judging": _while_judging,
    "two audits": _second("another audit is writing to out"),
    "a second audit": _second("out already holds a recording"),
    "in the background": _in_its_step("SIGTERM"),
    "nohup": _no_hang_up,
}


# -- what is left ----------------------------------------------------------------------------------


def left(mark: str) -> list[psutil.Process]:
    """Processes that still have the mark, a moment after the end."""
    last = time.monotonic() + LEFT_S
    while found := _marked(mark):
        if time.monotonic() > last:
            break
        time.sleep(0.1)
    return found


def _marked(mark: str) -> list[psutil.Process]:
    return [each for each in psutil.process_iter() if _is_of(each, mark)]


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
    return [
        pytest.param(name, marks=pytest.mark.full if death.quick else pytest.mark.slow)
        for name, death in DEATHS.items()
    ]


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
        out, err = process.communicate(timeout=WAITS_S)
    finally:
        remaining = left(mark) if name not in MAY_STAY else _marked(mark)
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
    outcomes = [
        outcome
        for code, outcomes in (death.end, *death.ends)
        if code == process.returncode
        for outcome in outcomes
    ]
    if not outcomes:
        assert not report.is_file() or name == "own_report"
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
"""A process that made itself the leader of a session asked to outlive us: it is named, and not
ended.
"""


def rows(folder: Path) -> list[dict[str, float]]:
    """Whole steps; none where the first one failed."""
    path = folder / "out" / "recording" / "steps.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def own_words(said: str) -> str:
    """Without what the target itself prints: exceptions in its threads, atexit handlers and
    ``__del__``; and the interpreter's last words.
    """
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
