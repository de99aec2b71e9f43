"""TensorBoard with our tab, in this process, for this machine alone."""

from __future__ import annotations

import atexit
import logging
import multiprocessing.util
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from auditor.errors import AuditProblem

from .pages import StartResponse, refused

HOST = "127.0.0.1"


def start(root: Path, port: int | None, *, talkative: bool = False) -> str:
    """Start TensorBoard on ``root`` in a thread of its own and return the address of the Audit tab.

    ``port`` None looks for a free one from 6006 upwards, 0 takes any. Unless ``talkative``, plugins
    lose their stderr: torch-tb-profiler writes hundreds of lines about an ordinary trace, from
    processes of its own. Raises :class:`AuditProblem` where the port is taken.
    """
    try:
        from tensorboard import default, program
    except ImportError as error:
        raise AuditProblem(
            f"TensorBoard cannot be loaded: {error}",
            "pip install 'torch-step-audit[all]', or add --trace to do without it",
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


def leave() -> NoReturn:
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
