"""``audit view``: TensorBoard on a run with the Audit tab."""

import atexit
import contextlib
import logging
import multiprocessing.util
import os
import signal
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Any, NoReturn

from auditor.cli import console, open_input, tensorboard_files
from auditor.cli.usage import STOPPING
from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.extensions.tensorboard_tab.pages import StartResponse, refused
from auditor.extensions.tensorboard_tab.runs import EXPORTED, RunFolder, runs_in
from auditor.recordings.folder import MANIFEST, Recording

HOST = "127.0.0.1"

MADE = 16
"""Runs whose files are written on opening a folder, at most: 100 MB of trace take a second."""


def view(*, path: str, port: int | None, browser: bool, debug: bool) -> NoReturn:
    """Serve until Ctrl-C."""
    root = _folder(Path(path))
    complete(root)
    url = start_board(root, port, talkative=debug)
    console.say(url)
    console.say("Ctrl-C ends it.", err=True)
    if browser and (
        sys.platform in ("darwin", "win32")
        or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    ):
        webbrowser.open(url)
    _wait()
    leave_board()


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
    # nothing is written through a link, even a dangling one
    missing = [run for run in runs_in(root) if not os.path.lexists(run.folder / EXPORTED)]
    for run in missing[:MADE]:
        recording = _recording_inside(run)
        if recording is not None:
            # the pages say what is wrong with a report that cannot be read
            with contextlib.suppress(AuditProblem):
                report = open_input.report_of(run.folder)
                tensorboard_files.write(report, Evidence(recording), run.folder / EXPORTED)


def _recording_inside(run: RunFolder) -> Recording | None:
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
    """Until Ctrl-C or a request to end (not a closed terminal under ``nohup``), then ends."""
    over = threading.Event()
    numbers = [getattr(signal, name) for name in ("SIGINT", *STOPPING) if hasattr(signal, name)]
    for each in numbers:
        if each == signal.SIGINT or signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, lambda *_: over.set())
    while not over.wait(3600):
        pass


# -- TensorBoard with our tab, in this process, for this machine alone -----------------------------


def start_board(root: Path, port: int | None, *, talkative: bool = False) -> str:
    """Start TensorBoard on ``root`` in a thread of its own and return the address of the Audit tab.

    ``port`` None looks for a free one from 6006 upwards, 0 takes any. Unless ``talkative``, plugins
    lose their stderr: torch-tb-profiler writes hundreds of lines about an ordinary trace, from
    processes of its own. Raises :class:`AuditProblem` if the port is taken.
    """
    try:
        from tensorboard import default, program
    except ImportError as error:
        raise AuditProblem(
            f"TensorBoard cannot be loaded: {error}", "pip install 'torch-step-audit[all]'"
        ) from None
    from auditor.extensions.tensorboard_tab.plugin import AuditPlugin

    if not talkative:
        logging.getLogger("tensorboard").setLevel(logging.ERROR)
        _keep_stderr_to_ourselves()
    # Processes of plugins inherit this folder for their sockets, and it goes when we leave. A process
    # that is ended leaves one of its own behind.
    multiprocessing.util.get_temp_dir()
    # Our own class instead of the one that the entry point may name: this also works from a
    # checkout.
    others = [
        plugin
        for plugin in default.get_plugins()
        if getattr(plugin, "plugin_name", "") != AuditPlugin.plugin_name
    ]
    board = program.TensorBoard(plugins=[AuditPlugin, *others], server_class=_server)
    # Without the data server there is no second process that could outlive this one.
    board.configure(argv=["tensorboard"], logdir=str(root), host=HOST, port=port, load_fast="false")
    try:
        url: str = board.launch()
    except program.TensorBoardServerException as problem:
        raise AuditProblem(
            f"port {port} cannot be used: {str(problem).splitlines()[0]}", "choose another --port"
        ) from None
    return f"{url.rstrip('/')}/#audit"


def _server(application: Any, flags: Any) -> Any:
    """TensorBoard's server, refusing a stranger's name that leads to this machine."""
    from tensorboard import program

    def for_this_machine(environ: dict[str, Any], start_response: StartResponse) -> Any:
        name = str(environ.get("HTTP_HOST", "")).rpartition(":")[0] or environ.get("HTTP_HOST")
        if name not in (HOST, "localhost"):
            return refused("403 Forbidden", "this address is not served", start_response)
        return application(environ, start_response)

    return program.create_port_scanning_werkzeug_server(for_this_machine, flags)


def _keep_stderr_to_ourselves() -> None:
    """``sys.stderr`` goes on; writes to descriptor 2, as of child processes, are not shown."""
    sys.stderr.flush()
    ours = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    sys.stderr = os.fdopen(ours, "w", buffering=1, errors="backslashreplace")


def leave_board() -> NoReturn:
    """End this process at once, and every process that a plugin started.

    torch-tb-profiler reads traces in processes that Ctrl-C ends too, and in threads that then wait
    for them for ever: a plain exit would hang there.
    """
    for child in multiprocessing.active_children():
        child.terminate()
        child.join(5)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(0)
