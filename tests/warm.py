"""Processes of ours that have torch imported when they begin (Linux): forks of a process that did
nothing but import it.

``audit`` of tests/conftest.py starts the command line here, and what that starts to record comes
from here too; else each would import torch anew, for two to three seconds. What a process can see
is as if it were started by itself: arguments, directory, environment, streams, session, parent,
signals, and an end by the interpreter's own way. A start with other settings than the ones that
torch was imported with is a start of Python.
"""

import array
import ctypes
import fcntl
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 1 << 20
"""Bytes of one request."""

SERVE = "from tests.warm import serve; exec(serve())"
DECIDES = ("OMP", "MKL", "KMP", "TORCH", "PYTORCH", "CUDA", "NVIDIA", "LD_", "PYTHON", "MALLOC")
"""Variables that say how Python and torch begin start so: they must be the server's."""

SEED = "PYTHONHASHSEED"
"""But this: trials ask for 0, which the server has, and others for none."""

_SET_CHILD_SUBREAPER = 36


def decisive(surroundings: Any) -> dict[str, str]:
    return {
        name: value
        for name, value in surroundings.items()
        if name.startswith(DECIDES) and name != SEED
    }


# -- requests --------------------------------------------------------------------------------------


def send(connection: socket.socket, request: object, files: tuple[int, ...] = ()) -> None:
    """A length, the files beside it, and the request."""
    content = json.dumps(request).encode()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    connection.sendmsg([len(content).to_bytes(8, "big")], rights)
    connection.sendall(content)


def receive(connection: socket.socket) -> tuple[Any, list[int]]:
    """Raises EOFError where nobody asks any more."""
    files = array.array("i")
    head, beside, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(64 * files.itemsize))
    if len(head) < 8:
        raise EOFError
    for _, _, words in beside:
        files.frombytes(words[: len(words) - len(words) % files.itemsize])
    left, content = int.from_bytes(head, "big"), b""
    while len(content) < left:
        part = connection.recv(left - len(content))
        if not part:
            raise EOFError
        content += part
    return json.loads(content), list(files)


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

    import auditor.capture.child
    import auditor.capture.probes.registry
    import auditor.capture.session
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
    places = [0, 1, 2, *request.get("pass_fds", ())]
    high = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 200) for file in files]
    for file, place in zip(high, places, strict=True):
        os.dup2(file, place)
    for file in (*files, *high):
        if file not in places:
            os.close(file)
    if request["session"]:
        os.setsid()
    if request["cwd"] is not None:
        os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv[:] = ["-c", *request["args"]]
    sys.orig_argv[:] = [sys.executable, "-c", request["code"], *request["args"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.modules["numpy"].random.seed()


# -- processes that a warm process starts ----------------------------------------------------------


def lend() -> str:
    """Have what this process starts to record begin in a fork of what it is now: of a second
    process, kept as it is, since this one goes on to import the command line.

    Returns empty; in each process that begins so, its program.
    """
    ours, theirs = (far(each) for each in socket.socketpair())
    keeper = os.fork()
    if keeper == 0:
        ours.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for place in (0, 1, 2):
            os.dup2(nothing, place)
        return keep(theirs)
    theirs.close()
    replace_starts(ours)
    return ""


def far(connection: socket.socket) -> socket.socket:
    """The same, where no file of a program is."""
    number = fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD_CLOEXEC, 500)
    connection.close()
    return socket.socket(fileno=number)


def keep(asked: socket.socket) -> str:
    """Returns in each process that is asked for: with its program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            request, files = receive(asked)
        except (EOFError, OSError):
            os._exit(0)
        between = os.fork()
        if between == 0:
            between_us = os.getpid()
            begun = os.fork()
            if begun:
                send(asked, begun)
                os._exit(0)
            # Not before: set_up() of a recording asks to end with its parent, which must be it.
            while os.getppid() == between_us:
                time.sleep(0.0005)
            try:
                become(request, files)
            except OSError as error:
                send(asked, [error.errno, error.strerror, error.filename])
                os._exit(1)
            send(asked, "begun")
            asked.close()
            return str(request["code"])
        for file in files:
            os.close(file)
        os.waitpid(between, 0)


def replace_starts(keeper: socket.socket) -> None:
    """Where a start of Python is one of a recording, it begins in a fork."""
    start = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    began = decisive(os.environ)
    one_at_a_time = threading.Lock()

    def _execute_child(self: Any, args: Any, executable: Any, preexec: Any, *more: Any) -> None:
        from auditor.runs.child_process import BOOT

        close_fds, pass_fds, cwd, env, _, _, shell, *pipes, _, _, _, _, _, session, _ = more
        read, write, out_read, out_write, err_read, err_write = pipes
        surroundings = dict(os.environ if env is None else env)
        ours = (
            isinstance(args, list | tuple)
            and list(args[:3]) == [sys.executable, "-c", BOOT]
            and preexec is None
            and not shell
            and close_fds
            and decisive(surroundings) == began
            and surroundings.get(SEED, "0") == "0"
        )
        if not ours:
            return start(self, args, executable, preexec, *more)
        streams = (
            0 if read == -1 else read,
            1 if out_write == -1 else out_write,
            2 if err_write == -1 else err_write,
        )
        request = {
            "code": BOOT,
            "args": list(args[3:]),
            "env": surroundings,
            "cwd": os.path.abspath(cwd) if cwd is not None else os.getcwd(),
            "session": session,
            "pass_fds": list(pass_fds),
        }
        with one_at_a_time, parent_of_orphans():
            send(keeper, request, (*streams, *pass_fds))
            self.pid = receive(keeper)[0]
            answer = receive(keeper)[0]
            if answer != "begun":
                raise OSError(*answer)
            assert parent_of(self.pid) == os.getpid()
        self._child_created = True
        self._close_pipe_fds(read, write, out_read, out_write, err_read, err_write)
        return None

    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]


def parent_of(process: int) -> int:
    status = Path(f"/proc/{process}/stat").read_text()
    return int(status[status.rindex(")") + 2 :].split()[1])


class parent_of_orphans:
    """Meanwhile this process is the parent of those whose own has ended (prctl(2))."""

    def __enter__(self) -> None:
        before = ctypes.c_int()
        ctypes.CDLL(None).prctl(37, ctypes.byref(before), 0, 0, 0)
        self._before = before.value
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def __exit__(self, *error: object) -> None:
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, self._before, 0, 0, 0)


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
        request = {"code": code, "args": args, "env": env, "cwd": str(cwd), "session": False}
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
