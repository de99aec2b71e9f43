"""The folder of a long run: the last reports, and a lock, so that one process alone writes there."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from auditor.cli.out_folder import locked, numbered
from auditor.errors import AuditProblem

LOOKS = "looks"
_FOLDER = re.compile(r"\d{8}-\d{6}-step\d+(-\d+)?")

ROOM = 1 << 30
"""Bytes that must be free on the disk for a look."""


class Folder:
    """``keep`` looks stay in ``path``."""

    def __init__(self, path: Path, keep: int) -> None:
        self.path = path
        self._keep = keep
        self._lock: int | None = None

    def open(self) -> None:
        """Make the folder, and be its only writer. Raises :class:`AuditProblem`."""
        try:
            (self.path / LOOKS).mkdir(parents=True, exist_ok=True)
            flags = os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
            self._lock = os.open(self.path / ".watch.lock", flags, 0o600)
        except OSError as error:
            raise AuditProblem(
                f"{self.path} cannot be written: {error.strerror}", "choose another out="
            ) from None
        if not locked(self._lock):
            self.close()
            raise AuditProblem(
                f"another process is watching into {self.path}", "choose another out="
            )

    def close(self) -> None:
        """Let others write here. May be called twice."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                os.close(lock)

    def fresh(self, step: int) -> Path:
        """A folder for a look. Raises :class:`AuditProblem` where the disk is nearly full."""
        if shutil.disk_usage(self.path).free < ROOM:
            raise AuditProblem(f"the disk of {self.path} has less than 1 GiB left")
        found = numbered(self.path / LOOKS / f"{datetime.now():%Y%m%d-%H%M%S}-step{step}")
        found.mkdir(parents=True)
        return found

    def prune(self) -> None:
        """Remove all looks but the last ones; nothing that is not ours."""
        with suppress(OSError):
            ours = sorted(
                each
                for each in (self.path / LOOKS).iterdir()
                if _FOLDER.fullmatch(each.name) and each.is_dir() and not each.is_symlink()
            )
            for each in ours[: max(0, len(ours) - self._keep)]:
                shutil.rmtree(each, ignore_errors=True)
