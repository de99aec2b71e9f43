"""``audit attach PID``: how a process is asked for a look, and how it answers.

By files in a folder that belongs to the user alone, named by PID and the time at which the process
began (a PID is used again). No ptrace, no signal: what a process does not expect can end it.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditor.errors import AuditProblem

BYTES = 64 * 1024
"""Of a file that is read here, at most."""


def room() -> Path:
    """The folder; the same for all processes of a user, whatever their environment says."""
    base = Path(tempfile.gettempdir() if os.name == "nt" else f"{os.sep}tmp")
    return base / f"torch-step-audit-{_user()}"  # used only if is_ours() says so


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def is_ours(folder: Path) -> bool:
    """Whether it is a real folder of this user's, that nobody else can enter."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return private and found.st_uid == _user()


def began(pid: int) -> str | None:
    """When the process began, as a word that no later process of this PID has; None where there is
    none.
    """
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read(4096).rpartition(b")")[2].split()
        except OSError:
            return None
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    import psutil

    try:
        return str(round(psutil.Process(pid).create_time()))
    except psutil.Error:
        return None


@dataclass(frozen=True)
class _Files:
    """The files of one process."""

    folder: Path
    pid: int
    began: str

    def _named(self, what: str) -> Path:
        return self.folder / f"{self.pid}-{self.began}.{what}"

    @property
    def watched(self) -> Path:
        return self._named("watched")

    @property
    def look(self) -> Path:
        return self._named("look")

    @property
    def answer(self) -> Path:
        return self._named("answer")


class Door:
    """In a watching process: is there a request, and its answer."""

    def __init__(self) -> None:
        self._files: _Files | None = None

    def open(self, facts: dict[str, Any]) -> str:
        """From now on this process can be asked; a sentence where it cannot."""
        folder, pid = room(), os.getpid()
        since = began(pid)
        with suppress(FileExistsError, OSError):
            folder.mkdir(mode=0o700)
        if os.name == "nt" or since is None or not is_ours(folder):
            return f"audit attach cannot reach this process: {folder} is not this user's alone"
        self._files = _Files(folder, pid, since)
        _sweep(folder)
        with suppress(OSError):
            _write(self._files.watched, {"pid": pid, **facts})
        return ""

    def asked(self) -> bool:
        """Whether somebody has asked since this was asked last."""
        files = self._files
        if files is None:
            return False
        return taken(files.look)

    def answer(self, **said: Any) -> None:
        """What became of the request."""
        if self._files is not None:
            with suppress(OSError):
                _write(self._files.answer, said)

    def close(self) -> None:
        """From now on it cannot be asked. May be called twice."""
        files, self._files = self._files, None
        if files is not None:
            for each in (files.watched, files.look):
                with suppress(OSError):
                    each.unlink()


def taken(path: Path) -> bool:
    """Whether the file was there; it no longer is."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def swept() -> Path | None:
    """The folder, if it is ours and nothing that runs has a file in it; what ended processes left is
    removed.
    """
    folder = room()
    if not is_ours(folder):
        return None
    _sweep(folder)
    return None if any(folder.iterdir()) else folder


def _sweep(folder: Path) -> None:
    """Remove what processes left that did not end in order."""
    with suppress(OSError):
        for each in list(folder.iterdir()):
            pid, _, since = each.name.partition(".")[0].partition("-")
            if pid.isdigit() and began(int(pid)) != since:
                with suppress(OSError):
                    each.unlink()


def _write(path: Path, facts: dict[str, Any]) -> None:
    fresh = path.with_suffix(f"{path.suffix}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(fresh, flags, 0o600), "w") as file:
        json.dump(facts, file)
    fresh.replace(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(BYTES))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


# -- asking ----------------------------------------------------------------------------------------


class Request:
    """Another process, asked for a look. Raises :class:`AuditProblem` where it cannot be."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        owner = _owner(pid)
        if owner is None:
            raise AuditProblem(f"no process {pid} is running here")
        if owner != _user():
            raise AuditProblem(
                f"process {pid} belongs to another user", "audit attach works as its own user"
            )
        since, folder = began(pid), room()
        files = _Files(folder, pid, since or "")
        facts = _read(files.watched) if since is not None and is_ours(folder) else None
        if facts is None:
            raise AuditProblem(
                f"process {pid} does not watch its training",
                "it must have entered auditor.watch(every=...) (docs/watch.md)",
            )
        self.facts = facts
        self._files = files

    def send(self) -> None:
        """Ask."""
        with suppress(OSError):
            self._files.answer.unlink()
        try:
            _write(self._files.look, {})
        except OSError as error:
            raise AuditProblem(f"process {self.pid} cannot be asked: {error.strerror}") from None

    @property
    def pending(self) -> bool:
        """Whether the request still lies there."""
        return self._files.look.exists()

    @property
    def alive(self) -> bool:
        """Whether the process is still the one that was asked."""
        return began(self.pid) == self._files.began

    def answer(self) -> dict[str, Any] | None:
        """What became of it, told once; None as long as that is not known."""
        said = _read(self._files.answer)
        if said is not None:
            taken(self._files.answer)
        return said


def _owner(pid: int) -> int | None:
    import psutil

    try:
        return int(psutil.Process(pid).uids().effective)
    except psutil.Error:
        return None
    except AttributeError:  # not POSIX
        return _user()
