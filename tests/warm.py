"""Processes of ours that have torch imported when they begin (Linux): forks of a process that did
nothing but import it.

``audit`` of tests/conftest.py starts the command line here, and what that starts to record comes
from here too; else each would import torch anew, for two to three seconds. What a process can see
is as if it were started by itself: arguments, directory, environment, streams, session, parent,
signals, and an end by the interpreter's own way. A start with other settings than the ones that
torch was imported with is a start of Python.
"""

import atexit
import fcntl
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from auditor.capture import forks
from auditor.runs import fork_server
from auditor.runs.fork_server import receive, send

ROOT = Path(__file__).resolve().parent.parent

SERVE = "from tests.warm import serve; exec(serve())"
SEED = "PYTHONHASHSEED"
"""Trials ask for 0, which the server has, and others for none."""


def decisive(surroundings: Any) -> dict[str, str]:
    found = fork_server.decisive(surroundings)
    return {name: value for name, value in found.items() if name != SEED}


# -- the server ------------------------------------------------------------------------------------


def serve() -> str:
    """Returns in each process that is asked for: with its program."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    load()
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads is not forked"
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        try:
            connection = listening.accept()[0]
        except OSError:
            os._exit(0)
        if os.fork():
            connection.close()
            continue
        listening.close()
        try:
            request, files = receive(connection)
        except EOFError:
            os._exit(0)
        begun = os.fork()
        if begun == 0:
            connection.close()
            become(request, files)
            return lend() or str(request["code"])
        for file in files:
            os.close(file)
        with suppress(OSError):
            send(connection, begun)
            send(connection, os.waitstatus_to_exitcode(os.waitpid(begun, 0)[1]))
        os._exit(0)


def load() -> None:
    """What every recording imports, and every command that judges one. Of it all nothing is garbage
    one day, and a collection that looked at it would copy it.
    """

    for name in forks.MODULES:
        importlib.import_module(name)
    import auditor.cli.main
    import auditor.cli.run
    import auditor.cli.write_results  # noqa: F401
    from auditor.judging import catalogue

    catalogue.own_rules()
    gc.collect()
    gc.freeze()


def become(request: dict[str, Any], files: list[int]) -> None:
    """Take what a new process would have been given."""
    sys.modules.pop("tests.warm", None)
    sys.modules.pop("tests", None)
    places = [0, 1, 2]
    high = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 200) for file in files]
    for file, place in zip(high, places, strict=True):
        os.dup2(file, place)
    for file in (*files, *high):
        if file not in places:
            os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv[:] = ["-c", *request["args"]]
    sys.orig_argv[:] = [sys.executable, "-c", request["code"], *request["args"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.modules["numpy"].random.seed()


# -- processes that a warm process starts ----------------------------------------------------------


def lend() -> str:
    """Have this process' recordings begin as forks of what it is now: of a second process, which
    is its fork server (auditor/runs/fork_server.py).

    Returns empty; in each process that begins so, its program.
    """
    ours, theirs = (far(each) for each in socket.socketpair())
    keeper = os.fork()
    if keeper == 0:
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for place in (0, 1, 2):
            os.dup2(nothing, place)
        forks.serve(theirs)
        return "from auditor.capture.child import main; main()"
    theirs.close()
    server = Lent(ours, keeper)
    for seed in ({}, {SEED: "0"}):
        surroundings = {**decisive(os.environ), **seed}
        fork_server.SERVERS[tuple(sorted(surroundings.items()))] = server
    return ""


class Lent(fork_server.ForkServer):
    """One that was begun by a fork."""

    def __init__(self, asked: socket.socket, keeper: int) -> None:
        self._asked, self.forks = asked, 0
        self.process = psutil.Process(keeper)  # type: ignore[assignment]  # has pid and wait
        atexit.register(self.close)


def far(connection: socket.socket) -> socket.socket:
    """The connection under a number far above those of a program's files."""
    number = fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, 500)
    connection.close()
    return socket.socket(fileno=number)


# -- who asks --------------------------------------------------------------------------------------


class Warm:
    """A server, begun when something is first asked of it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._env: dict[str, str] = {}
        self._one = threading.Lock()

    def _begin(self, surroundings: dict[str, str]) -> None:
        listening = socket.socket(socket.AF_UNIX)
        self._address = f"\0audit-tests-{os.getpid()}"
        listening.bind(self._address)
        listening.listen(16)
        self._env = decisive(surroundings)
        # As auditor/capture/process.py has it before torch is imported.
        env = {**surroundings, SEED: "0", "KINETO_LOG_LEVEL": "99"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(listening.fileno())],
            pass_fds=(listening.fileno(),),
            stdin=subprocess.DEVNULL,
            env=env,
            cwd=ROOT,
        )
        listening.close()

    def takes(self, surroundings: dict[str, str]) -> bool:
        """Whether a process with these variables can be a fork. Where torch knows CUDA (tests/cuda,
        on the null device too) none is: what its driver does when it is loaded is of one process.
        """
        import torch

        if sys.platform != "linux" or torch.version.cuda is not None:
            return False
        with self._one:
            if self._process is None:
                self._begin(surroundings)
        return decisive(surroundings) == self._env and surroundings.get(SEED, "0") == "0"

    def run(
        self, code: str, args: tuple[str, ...], cwd: Path, timeout: float, env: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """As ``subprocess.run([sys.executable, "-c", code, *args], capture_output=True, ...)``."""
        command = [sys.executable, "-c", code, *args]
        request = {"code": code, "args": args, "env": env, "cwd": str(cwd)}
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        texts = [b"", b""]

        def read(place: int, file: int) -> None:
            with open(file, "rb") as stream:
                texts[place] = stream.read()

        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._address)
            send(connection, request, (nothing, out_write, err_write))
            for file in (nothing, out_write, err_write):
                os.close(file)
            process = receive(connection)[0]
            readers = [
                threading.Thread(target=read, args=pair, daemon=True)
                for pair in enumerate((out_read, err_read))
            ]
            for each in readers:
                each.start()
            connection.settimeout(timeout)
            try:
                code_of_exit = receive(connection)[0]
            except TimeoutError:
                os.kill(process, signal.SIGKILL)
                raise subprocess.TimeoutExpired(command, timeout) from None
            for each in readers:
                each.join(timeout)
        out, err = (text.decode("utf-8").replace("\r\n", "\n") for text in texts)
        return subprocess.CompletedProcess(command, code_of_exit, out, err)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


WARM = Warm()
"""Of this process: begun by the first test that asks, ended with the session."""


def run_python(
    code: str,
    args: tuple[str, ...],
    *,
    cwd: Path,
    timeout: float,
    env: dict[str, str],
    cold: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program of ours and return what it wrote; with ``cold`` by a start of Python."""
    if not cold and WARM.takes(env):
        return WARM.run(code, args, cwd, timeout, env)
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=timeout, env=env, check=False
    )
