"""Where recording children come from on Linux: forks of one process that has imported torch and its
compiler, which takes three to five seconds, and nothing of the program.

A child sees what a process that was started would see: arguments, folder, environment, streams,
session, parent, and torch as a module that is not imported yet. A start whose variables would have
changed that import (:func:`decisive`) is a start of Python, and so is one of a program that sets
such a variable itself. ``AUDITOR_COLD_START=1`` makes all of them so. No torch.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from auditor import null_device
from auditor.errors import TargetProblem
from auditor.runs import target as targets
from auditor.runs.leftover_processes import adopting

ROOT = str(Path(__file__).resolve().parents[2])
SERVE = (
    "import sys; sys.path[:1] = [sys.argv[1]]; import socket; from auditor.capture.forks import serve; "
    "serve(socket.socket(fileno=int(sys.argv[2]))); from auditor.capture.child import main; main()"
)
COLD = "AUDITOR_COLD_START"
CHANGED = 250
"""The exit code of a child that ended because the program sets a variable before it imports torch."""

DECIDES = (
    *("OMP_ MKL_ KMP_ GOMP_ OPENBLAS_ GOTO_ NUMEXPR_ DNNL_ ONEDNN_ ATEN_ KINETO_".split()),
    *("TORCH PYTORCH_ NULLDEVICE PYTHON LD_ MALLOC_".split()),
)
"""How variables begin that Python, torch or a library of it reads as it is loaded. What CUDA reads
(``CUDA_VISIBLE_DEVICES``) is read when a device is first used, by the child.
"""

SETS = re.compile(rf"(?:environ|putenv|setenv)[^\n]{{0,80}}[\"'](?:{'|'.join(DECIDES)})")
"""Source that sets one of them."""

SERVERS: dict[tuple[tuple[str, str], ...], ForkServer | None] = {}
"""By the variables that decide; None if one ended before it forked."""

MOST_SERVERS = 2
_LOCK = threading.Lock()


def decisive(surroundings: Mapping[str, str]) -> dict[str, str]:
    """The variables that must be the same where torch is imported and where it is used."""
    return {name: value for name, value in surroundings.items() if name.startswith(DECIDES)}


def send(connection: socket.socket, request: object, files: Sequence[int] = ()) -> None:
    """A length with the files beside it, and the request as JSON."""
    content = json.dumps(request).encode()
    socket.send_fds(connection, [len(content).to_bytes(8, "big")], files)
    connection.sendall(content)


def receive(connection: socket.socket) -> tuple[Any, list[int]]:
    """The request and its files. Raises EOFError if the other side has ended."""
    head, files, _, _ = socket.recv_fds(connection, 8, 64)
    left = int.from_bytes(head, "big") if len(head) == 8 else 0
    content = b""
    while len(content) < left:
        content += connection.recv(left - len(content)) or b""
        if not content:
            break
    if not left or len(content) < left:
        raise EOFError
    return json.loads(content), list(files)


class Forked:
    """A fork server's recording child, as ``subprocess.Popen``; ``stdout`` has errors, too."""

    def __init__(self, pid: int, stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._end = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # another part of this process has waited for it
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
                os.close(self._end)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""
        if self.poll() is None:
            select.select([self._end], [], [], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("a recording child", timeout or 0.0)
        return code

    def send_signal(self, how: int) -> None:
        """Nothing happens if it has ended."""
        if self.poll() is None:
            os.kill(self.pid, how)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A process that imports torch, then forks once for each request until we end."""

    def __init__(self, surroundings: dict[str, str]) -> None:
        self.forks = 0
        self._asked, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", SERVE, ROOT, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                # read when torch is imported, as the child would set it (auditor/capture/process.py)
                env={"KINETO_LOG_LEVEL": "99", **surroundings},
                start_new_session=True,
            )
        atexit.register(self.close)  # may come twice

    def close(self) -> None:
        """Let it end, and wait for it."""
        self._asked.close()
        self.process.wait()

    def fork(self, request: dict[str, Any], files: Sequence[int]) -> int:
        """The number of a process that has become what is asked for. Raises OSError or EOFError."""
        send(self._asked, request, files)
        answer, _ = receive(self._asked)
        if not isinstance(answer, int):
            raise OSError(*answer)
        self.forks += 1
        return answer


def forked(
    words: Sequence[str], surroundings: dict[str, str], folder: str, writing: int
) -> Forked | None:
    """A recording child, forked; ``writing``: its pipe for progress. None if it must be started."""
    key = tuple(sorted(decisive(surroundings).items()))
    full = key not in SERVERS and len(SERVERS) == MOST_SERVERS
    if not _possible(surroundings) or full or SERVERS.get(key, "to come") is None:
        return None
    request = {
        "words": list(words),
        "environment": surroundings,
        "folder": folder,
        "writing": writing,
    }
    out_read, out_write = os.pipe()
    with _LOCK:
        server = SERVERS.get(key) or ForkServer(surroundings)
        SERVERS[key] = server
    try:
        with _LOCK, adopting():  # the child's own parent ends at once: then it is ours
            pid = server.fork(request, (out_write, writing))
    except (OSError, EOFError) as error:
        os.close(out_read)
        if isinstance(error, EOFError | ConnectionError):  # it has ended
            server.close()
            SERVERS[key] = None
            if server.forks:  # it had nothing to do for too long
                del SERVERS[key]
                return forked(words, surroundings, folder, writing)
        return None
    finally:
        os.close(out_write)
    return Forked(pid, os.fdopen(out_read, "rb"))


def sets_decisive(target: str, folder: str) -> bool:
    """Whether the source of a target sets a variable that decides how torch is imported."""
    with suppress(TargetProblem, OSError):
        address = targets.parse(target)
        file = address.path or address.module.replace(".", os.sep) + ".py"
        return SETS.search(Path(folder, file).read_text("utf-8", "replace")) is not None
    return False


def _possible(surroundings: Mapping[str, str]) -> bool:
    paths = surroundings.get("PYTHONPATH", "").split(os.pathsep)
    relative = any(not os.path.isabs(path) for path in paths) and "PYTHONPATH" in surroundings
    return (
        sys.platform == "linux"
        and not relative  # those of a copy are other folders
        and surroundings.get(COLD, "") in ("", "0")
        and null_device.without(surroundings) == dict(surroundings)
    )
