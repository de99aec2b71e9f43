"""The folder that a command writes to: made before the work, and never over the user's files."""

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None  # type: ignore[assignment]

from auditor.errors import AuditProblem
from auditor.model import SCHEMA

PARENT = "audits"
"""Where results go for which no folder was named."""

LAST = "last"
"""Name there of a link to the last results."""

WRITTEN = ("report.json", "report.html", "fixes.patch", "tensorboard")
"""What :func:`auditor.cli.write_results.write` leaves in a folder, and replaces where it stands."""

_PROBED = 64 * 1024
"""Bytes that must fit into the folder for a run to begin."""

_HEAD = 4096
"""Bytes at the start of a report.json in which its schema stands."""


def fresh(label: str) -> Path:
    """``audits/<label>-<time>``, numbered where that is taken; not made yet."""
    return numbered(Path(PARENT) / f"{label}-{datetime.now():%Y%m%d-%H%M%S}")


def numbered(folder: Path) -> Path:
    """The folder, or where that is taken the first of its name with a number behind it."""
    found, number = folder, 2
    while found.exists():
        found, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return found


def make(folder: Path) -> None:
    """Make the folder, so that one that cannot be written is known before an hour of work.

    Raises :class:`AuditProblem` if it cannot be made or written, or is a file, or holds foreign
    files that our results would replace.
    """
    refuse_others_files(folder)
    probe = folder / ".audit-writes-here"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(bytes(_PROBED))  # a full disk still has room for a name
        probe.unlink()
    except OSError as error:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
        raise AuditProblem(
            f"{folder} cannot be written: {error.strerror}", "choose a folder with --out"
        ) from None


def claimed(folder: Path) -> bool:
    """Claim the folder for this process, until it ends; False if another one that runs has done
    so.

    The lock is the kernel's own, on the folder itself (flock(2)): it leaves no file behind and ends
    with its process, however that ends. A file system without locks accepts every process.
    """
    try:
        number = os.open(folder, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return True
    if locked(number):
        return True
    os.close(number)
    return False


def locked(number: int) -> bool:
    """Lock an open file or folder until it is closed; False if another process has done so."""
    if fcntl is not None:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
    return True


def point_last(folder: Path) -> None:
    """Make ``audits/last`` lead to a folder of ``audits``, for scripts and hooks. A file system
    without links gets no link, and a foreign file of that name stays.
    """
    last, folder = Path(PARENT) / LAST, folder.resolve()  # it may be named by the link itself
    if folder.parent != last.parent.resolve() or (last.exists() and not last.is_symlink()):
        return
    fresh = last.with_name(f".{LAST}-{os.getpid()}")
    with suppress(OSError):
        fresh.symlink_to(folder.name, target_is_directory=True)
        os.replace(fresh, last)


def refuse_others_files(folder: Path) -> None:
    """Raise :class:`AuditProblem` if the folder is a file, or holds another's in our place."""
    if folder.exists() and not folder.is_dir():
        raise AuditProblem(f"--out {folder} is a file; it must be a folder")
    if is_report(folder / "report.json"):
        return
    there = next((name for name in WRITTEN if (folder / name).exists()), None)
    if there is not None:
        raise AuditProblem(
            f"{folder / there} was not written by audit and would be overwritten",
            "choose another folder with --out",
        )


def is_report(path: Path) -> bool:
    """True if a file begins as our report.json does."""
    try:
        with path.open("rb") as file:
            return f'"schema": "{SCHEMA}"'.encode() in file.read(_HEAD)
    except OSError:
        return False
