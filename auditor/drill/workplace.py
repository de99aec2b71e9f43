"""A private copy of the working directory for each run of a drill: a poisoned checkpoint must not replace a good one."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from auditor.errors import AuditProblem

COPIED_BYTES = 8 * 2**20
"""Files up to this size are copied, larger ones linked."""

CROWD = 2000
"""A folder with more entries is a data set: it is linked as a whole."""

MANY = 20_000
"""Files of one working directory at most."""

LINKED = frozenset({".git", ".hg", ".venv", "venv", "node_modules"})
LEFT_OUT = frozenset({"__pycache__", "audits", ".mypy_cache", ".ruff_cache", ".pytest_cache"})

LEVELS = 2
"""Folders above the working directory whose entries are reachable as ``../data``."""


class Workplace:
    """A copy of ``original`` in a temporary folder; :meth:`remove` deletes it and nothing that it links to."""

    def __init__(self, original: Path) -> None:
        self.original = original
        self._base = Path(tempfile.mkdtemp(prefix="audit-drill-")).resolve()
        above = list(original.parents)[:LEVELS]
        self.folder = self._base.joinpath(*(part.name for part in reversed(above[:-1])), original.name or "root")
        self.folder.mkdir(parents=True)
        self._files = 0
        self._copy(original, self.folder)
        self._link_above(above)

    def _copy(self, source: Path, target: Path) -> None:
        for entry in os.scandir(source):
            place = target / entry.name
            if entry.name in LEFT_OUT:
                continue
            if entry.is_dir(follow_symlinks=False) and entry.name not in LINKED and not _crowded(entry.path):
                place.mkdir()
                self._copy(Path(entry.path), place)
            elif entry.is_file(follow_symlinks=False) and entry.stat().st_size <= COPIED_BYTES:
                shutil.copy2(entry.path, place)
            elif entry.is_dir() or entry.is_file():
                place.symlink_to(os.path.realpath(entry.path))
            self._files += 1
        if self._files > MANY:
            raise AuditProblem(
                f"{self.original} holds more than {MANY} files: a drill runs in a copy of the working directory",
                "start it from the project's own folder",
            )

    def _link_above(self, above: list[Path]) -> None:
        """What lies beside the working directory and its parent, as links."""
        place = self.folder.parent
        for folder in above:
            if folder != Path(folder.anchor) and not _crowded(str(folder)):
                for entry in os.scandir(folder):
                    if not os.path.lexists(place / entry.name):
                        (place / entry.name).symlink_to(entry.path)
            place = place.parent

    def remove(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self._base, ignore_errors=True)


def _crowded(folder: str) -> bool:
    try:
        return len(os.listdir(folder)) > CROWD
    except OSError:
        return True
