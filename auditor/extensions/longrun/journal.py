"""What a long run leaves on disk: ``watch.jsonl``, rotated, and the last reports."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from auditor.cli.out_folder import locked, numbered
from auditor.errors import AuditProblem

NAME = "watch.jsonl"
ROTATED = "watch.jsonl.1"
LIMIT = 4 << 20
"""Bytes of the file; the one before it is kept as well, so that both hold twice as much."""

LOOKS = "looks"
_FOLDER = re.compile(r"\d{8}-\d{6}-step\d+(-\d+)?")

ROOM = 1 << 30
"""Bytes that must be free on the disk for a look."""


class Journal:
    """A folder of one watching process, locked while it watches."""

    def __init__(self, folder: Path, keep: int, limit: int = LIMIT) -> None:
        self.folder = folder
        self._keep = keep
        self._limit = limit
        self._lock: int | None = None

    def open(self) -> None:
        """Make the folder, and be its only writer. Raises :class:`AuditProblem`."""
        try:
            (self.folder / LOOKS).mkdir(parents=True, exist_ok=True)
            flags = os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
            self._lock = os.open(self.folder / ".watch.lock", flags, 0o600)
        except OSError as error:
            raise AuditProblem(
                f"{self.folder} cannot be written: {error.strerror}", "choose another out="
            ) from None
        if not locked(self._lock):
            self.close()
            raise AuditProblem(
                f"another process is watching into {self.folder}", "choose another out="
            )

    def close(self) -> None:
        """Let others write here. May be called twice."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                os.close(lock)

    def add(self, kind: str, step: int, **fields: Any) -> None:
        """Append a line; one that the disk does not take is lost."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        row = {"time": at, "kind": kind, "step": step, **fields}
        line = json.dumps(row, separators=(",", ":"), default=str).encode() + b"\n"
        path = self.folder / NAME
        with suppress(OSError):
            if path.exists() and path.stat().st_size + len(line) > self._limit:
                path.replace(self.folder / ROTATED)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            with os.fdopen(os.open(path, flags, 0o666), "ab", buffering=0) as file:
                file.write(line)

    # -- reports -----------------------------------------------------------------------------------

    def fresh(self, step: int) -> Path:
        """A folder for a look. Raises :class:`AuditProblem` where the disk is nearly full."""
        free = shutil.disk_usage(self.folder).free
        if free < ROOM:
            raise AuditProblem(f"the disk of {self.folder} has less than 1 GiB left")
        found = numbered(self.folder / LOOKS / f"{datetime.now():%Y%m%d-%H%M%S}-step{step}")
        found.mkdir(parents=True)
        return found

    def prune(self) -> None:
        """Remove all looks but the last ones; nothing that is not ours."""
        with suppress(OSError):
            ours = sorted(
                each
                for each in (self.folder / LOOKS).iterdir()
                if _FOLDER.fullmatch(each.name) and each.is_dir() and not each.is_symlink()
            )
            for each in ours[: max(0, len(ours) - self._keep)]:
                shutil.rmtree(each, ignore_errors=True)
