"""Processes that a target leaves behind: those of its own group end with us, those that began a
session of their own are named.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from contextlib import suppress

import psutil

_SET_CHILD_SUBREAPER = 36
"""prctl(2), PR_SET_CHILD_SUBREAPER: processes whose parent has ended become children of ours, and
can be named.
"""

_NAMED = 120
"""Characters of a command line that are reported."""


class Keeper:
    """Ends a process group when this process ends, however it does: also by SIGKILL, when our
    process is gone.

    A shell reads from a pipe whose other end only we hold. When that closes it kills the group; a
    line lets it go. The kernel's own way (PR_SET_PDEATHSIG) reaches the recording process alone,
    not what the target has started.
    """

    def __init__(self, group: int) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        with suppress(OSError):  # no shell: then only the recording process itself ends with us
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", f"read -r _ || kill -9 -{group}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )

    @property
    def pid(self) -> int | None:
        """The shell's process."""
        return None if self._shell is None else self._shell.pid

    def release(self) -> None:
        """Let the shell go without killing anything. May be called twice."""
        shell, self._shell = self._shell, None
        if shell is None or shell.stdin is None:
            return
        with suppress(OSError):
            shell.stdin.write(b"\n")
            shell.stdin.flush()
        with suppress(OSError):
            shell.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            shell.wait(2.0)


class Orphans:
    """Finds processes of a target that outlive it. Use as a context around the target's run.

    Meanwhile we are their parent once their own has ended (Linux; elsewhere nothing is found).
    """

    def __init__(self) -> None:
        self._before = _children()
        self._was = _is_subreaper()
        _be_subreaper(True)

    def left(self, known: set[int], killed: int = 0) -> list[str]:
        """What began a session of its own and runs on, as ``command (process 123)``; not those
        whose numbers are ``known``, nor those of the group that was ``killed``, which may take a
        while to end.
        """
        mine = os.getsid(0)
        for each in _children():
            if each.pid not in known and each not in self._before:
                with suppress(OSError, psutil.Error):
                    if each.status() == psutil.STATUS_ZOMBIE:
                        os.waitpid(each.pid, os.WNOHANG)
        new = (each for each in _children() if each.pid not in known and each not in self._before)
        return [_told(each) for each in new if _leads_on(each, mine, killed)]

    def close(self) -> None:
        """Be no parent of strangers any more. May be called twice."""
        if not self._was:
            _be_subreaper(False)


def _children() -> list[psutil.Process]:
    with suppress(psutil.Error):
        return list(psutil.Process().children())
    return []


def _leads_on(process: psutil.Process, mine: int, killed: int) -> bool:
    try:
        ends = process.status() == psutil.STATUS_ZOMBIE or os.getpgid(process.pid) == killed
        return os.getsid(process.pid) != mine and not ends
    except (OSError, psutil.Error):
        return False


def _told(process: psutil.Process) -> str:
    try:
        command = " ".join(process.cmdline()) or process.name()
    except psutil.Error:
        command = "?"
    return f"{command[:_NAMED]} (process {process.pid})"


def _prctl(option: int, argument: object) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def _is_subreaper() -> bool:
    state = ctypes.c_int(0)
    return _prctl(_SET_CHILD_SUBREAPER + 1, ctypes.byref(state)) and bool(state.value)


def _be_subreaper(on: bool) -> None:
    _prctl(_SET_CHILD_SUBREAPER, ctypes.c_ulong(int(on)))
