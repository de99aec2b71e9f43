"""``audit view``: TensorBoard on a run with the Audit tab, or its pages without TensorBoard."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import webbrowser
from pathlib import Path

from auditor.cli import console, open_input, tensorboard_files
from auditor.cli.usage import STOPPING
from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.extensions.tensorboard_tab import board, local
from auditor.extensions.tensorboard_tab.runs import EXPORTED, Run, runs_in
from auditor.recordings.folder import MANIFEST, Recording

MADE = 16
"""Runs whose files are made at most when a folder of runs is opened: each takes about a second for
100 MB of trace.
"""


def view(*, path: str, port: int | None, browser: bool, trace: bool, debug: bool) -> int:
    """Serve until Ctrl-C; returns the exit code."""
    root = _folder(Path(path))
    if not trace:
        complete(root)
    url = local.start(root, port) if trace else board.start(root, port, talkative=debug)
    console.say(url)
    console.say("Ctrl-C ends it.", err=True)
    if browser and (
        sys.platform in ("darwin", "win32")
        or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    ):
        webbrowser.open(url)
    _wait()
    if not trace:
        board.leave()
    return 0


def _folder(path: Path) -> Path:
    if not path.is_dir():
        what = f"{path} is a file, not a folder" if path.exists() else f"{path} does not exist"
        ours = path.name in ("report.json", "report.html") and path.exists()
        raise AuditProblem(
            what,
            f"give its folder: audit view {path.parent}"
            if ours
            else "give the folder that audit run wrote",
        )
    if path.name == "recording" and (path / MANIFEST).is_file():
        path = path.parent
    runs = runs_in(path)
    if any((run.folder / "recording").is_dir() or _is_ours(run.report()) for run in runs):
        return path.resolve()
    if (path / "recording" / MANIFEST).is_file():
        raise AuditProblem(
            f"{path} holds a recording but no report", f"audit analyze {path} writes it"
        )
    raise AuditProblem(
        f"{path} holds no run of audit ({'report.json is not of audit' if runs else 'no report.json'})",
        "give the folder that audit run wrote, or one of several runs",
    )


def _is_ours(report: Path | None) -> bool:
    """Whether a file begins as our reports do; other tools write a ``report.json``, too."""
    if report is None:
        return False
    with report.open("rb") as file:
        return b'"audit-report/' in file.read(4096)


def complete(root: Path) -> None:
    """Write what is missing of the runs at and below ``root`` whose recording is beside their
    report.

    A report on a trace that stands alone has no recording: ``audit analyze --tensorboard`` copies
    that.
    """
    missing = [run for run in runs_in(root) if not _is_taken(run.folder / EXPORTED)]
    for run in missing[:MADE]:
        recording = _recording_inside(run)
        if recording is not None:
            # the pages say what is wrong with a report that cannot be read
            with contextlib.suppress(AuditProblem):
                report = open_input.report_of(run.folder)
                tensorboard_files.write(report, Evidence(recording), run.folder / EXPORTED)


def _is_taken(path: Path) -> bool:
    """True if anything has this name, even a dangling link: nothing is written through one."""
    return path.exists() or path.is_symlink()


def _recording_inside(run: Run) -> Recording | None:
    """The run's recording, if its trace lies inside the folder that is shown."""
    trace = run.trace()
    if trace is None:
        return None
    with contextlib.suppress(AuditProblem):
        found = open_input.recording_of(run.folder)
        if found is not None and found.trace is not None and found.trace.resolve() == trace:
            return found
    return None


def _wait() -> None:
    """Until Ctrl-C or a request to end; under ``nohup`` a terminal that is closed is none. The
    server's threads end with the process.
    """
    over = threading.Event()
    numbers = [getattr(signal, name) for name in ("SIGINT", *STOPPING) if hasattr(signal, name)]
    for each in numbers:
        if each == signal.SIGINT or signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, lambda *_: over.set())
    while not over.wait(3600):
        pass
