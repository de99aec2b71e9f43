"""Processes that a target leaves behind: those of its own group end with us."""

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_SET_CHILD_SUBREAPER = 36
"""prctl(2), PR_SET_CHILD_SUBREAPER: processes whose parent has ended become children of ours."""


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


@contextmanager
def adopting() -> Iterator[None]:
    """Meanwhile processes whose parent ends become children of ours (Linux; elsewhere nothing)."""
    was = _is_subreaper()
    _be_subreaper(True)
    try:
        yield
    finally:
        if not was:
            _be_subreaper(False)


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
