"""A copy of the user's project to run patched code in: small files copied, everything else linked, nothing changed in place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from auditor.patch import PatchedFile

FILE_LIMIT = 1 << 20
"""Bytes of a file that is copied at most; larger ones (data, checkpoints) are linked."""

TREE_LIMIT = 64 << 20
"""Bytes that are copied at most."""

ENTRY_LIMIT = 5000
"""Files that are copied at most, and entries of a folder beyond which it is linked as a whole."""

LEVELS = 3
"""Folders above the working directory whose other entries are linked, so that ``../data`` is found."""

LINKED = frozenset({".git", ".hg", ".venv", "venv", "node_modules", ".tox", "wandb", "mlruns"})
LEFT_OUT = frozenset({"__pycache__", "audits", ".pytest_cache", ".mypy_cache", ".ruff_cache"})


@dataclass
class _Budget:
    files: int = ENTRY_LIMIT
    size: int = TREE_LIMIT

    def take(self, size: int) -> bool:
        """True if another file of this size may be copied."""
        if size > FILE_LIMIT or size > self.size or not self.files:
            return False
        self.files, self.size = self.files - 1, self.size - size
        return True


def copy(project: Path, scratch: Path, patched: Iterable[PatchedFile] = ()) -> Path:
    """Copy ``project`` below ``scratch`` and write the patched files there; returns the copy's path.

    Files of up to ``FILE_LIMIT`` are copies: what the program writes to them stays in the copy, as do new files. Large files
    and the folders of ``LINKED`` are links, so a program that overwrites one of these in place does so as in any other run.
    """
    files = {file.path: file.after for file in patched}
    kept = {str(parent) for path in files for parent in PurePosixPath(path).parents}
    folder = _surroundings(project, scratch)
    _mirror(str(project), folder, "", kept, _Budget())
    for path, content in files.items():
        target = folder / path
        target.unlink(missing_ok=True)  # it may be a link: never write through one
        target.write_bytes(content)
        with suppress(OSError):
            shutil.copymode(project / path, target)
    return folder


def _surroundings(project: Path, scratch: Path) -> Path:
    """The copy's own folder, in copies of the folders around it that link to everything else there."""
    around = [*project.parents][:LEVELS][::-1]
    here = scratch
    for parent, inner in zip(around, [*around[1:], project], strict=True):
        for entry in _entries(parent) or ():
            if entry.name != inner.name:
                os.symlink(entry.path, here / entry.name)
        here = here / inner.name
        here.mkdir()
    return here


def _entries(folder: Path | str) -> list[os.DirEntry[str]] | None:
    """Entries of a folder; None if it cannot be read, or has too many to go into."""
    with suppress(OSError), os.scandir(folder) as found:
        entries = list(islice(found, ENTRY_LIMIT + 1))
        return entries if len(entries) <= ENTRY_LIMIT else None
    return None


def _mirror(source: str, target: Path, below: str, kept: set[str], budget: _Budget) -> None:
    with os.scandir(source) as entries:
        for entry in entries:
            path = f"{below}{entry.name}"
            if path in kept or _worth_copying(entry):
                (target / entry.name).mkdir()
                _mirror(entry.path, target / entry.name, f"{path}/", kept, budget)
            elif entry.is_file(follow_symlinks=False) and budget.take(entry.stat().st_size):
                _copy_file(entry.path, target / entry.name)
            elif entry.name not in LEFT_OUT:
                os.symlink(entry.path, target / entry.name)


def _copy_file(source: str, target: Path) -> None:
    try:
        shutil.copy2(source, target)
    except OSError:
        target.unlink(missing_ok=True)
        os.symlink(source, target)


def _worth_copying(entry: os.DirEntry[str]) -> bool:
    """True for a folder of the project's own that is small enough to look into."""
    if not entry.is_dir(follow_symlinks=False) or entry.name in LINKED | LEFT_OUT:
        return False
    return _entries(entry.path) is not None and not os.path.isfile(os.path.join(entry.path, "pyvenv.cfg"))
