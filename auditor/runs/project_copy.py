"""A private copy of a project for one run of its program: what it writes stays in there."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

from auditor.errors import AuditProblem
from auditor.runs.plan import JOURNAL, Copied, Plan

if TYPE_CHECKING:
    from typing import Self

FILE_LIMIT = 1 << 20
"""Bytes of a file copied at most; larger ones are linked, and copied when written to."""

TREE_LIMIT = 64 << 20
"""Bytes that are copied at most."""

ENTRY_LIMIT = 5000
"""Files that are copied at most, and entries of a folder beyond which it is linked as a whole."""

LOOK_LIMIT = 50_000
"""Entries that are looked at; folders that come after them are linked as a whole."""

LEVELS = 3
"""Folders above the working directory whose entries are linked, so that ``../data`` is found."""

LINKED = frozenset(
    {".git", ".hg", ".venv", "venv", "node_modules", ".tox", "wandb", "mlruns", "audits"}
)
LEFT_OUT = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})

ENVIRONMENT = "pyvenv.cfg"
"""File by which a folder is known to hold a Python environment."""

NOTHING: Mapping[str, bytes | None] = MappingProxyType({})


class ProjectCopy:
    """A copy of ``original`` in ``folder``, in a temporary folder. Use as a context: at its end the
    copy goes.

    ``files`` are contents that replace the project's own, by path relative to it; None leaves the
    file out. Files of up to ``FILE_LIMIT`` are copied, the rest are links. A run under :meth:`plan`
    cuts a link before it writes through it (``auditor/capture/process.py``); what it does to the
    project under an absolute path is undone at the end.
    """

    def __init__(self, original: Path, files: Mapping[str, bytes | None] = NOTHING) -> None:
        self.original = original.resolve()
        self._base = Path(tempfile.mkdtemp(prefix="audit-")).resolve()
        try:
            (self._base / "tree").mkdir()
            (self._base / "kept").mkdir()
            self.folder = copy(self.original, self._base / "tree", files)
        except BaseException:
            shutil.rmtree(self._base, ignore_errors=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self._put_back()
        finally:
            shutil.rmtree(self._base, ignore_errors=True)

    def plan(self, plan: Plan) -> Plan:
        """The plan in the copy: absolute paths into the project become paths into the copy."""
        where = Copied(
            str(self.folder), str(self.original), str(self._base / "tree"), str(self._base / "kept")
        )

        def moved(word: str) -> str:
            name, equals, value = word.rpartition("=")
            return f"{name}{equals}{where.moved(value)}"

        args = tuple(map(moved, plan.args))
        return replace(plan, target=moved(plan.target), args=args, copied=where)

    def _put_back(self) -> None:
        """Undo what runs did outside of the copy, newest first."""
        journal = self._base / "kept" / JOURNAL
        if not journal.exists():
            return
        for line in reversed(journal.read_text("utf-8", "surrogateescape").splitlines()):
            with suppress(OSError, ValueError):  # a process that is killed may leave half a line
                row = json.loads(line)
                if row["kept"]:
                    os.makedirs(os.path.dirname(row["path"]), exist_ok=True)
                    shutil.move(row["kept"], row["path"])
                elif os.path.isdir(row["path"]):
                    os.rmdir(row["path"])
                else:
                    os.unlink(row["path"])


class NoCopy(AuditProblem):
    """A copy of the project cannot be made: the disk is full, or the working directory is gone."""


@contextmanager
def sheltered(plan: Plan, files: Mapping[str, bytes | None] = NOTHING) -> Iterator[Plan]:
    """The plan in a copy of the directory with ``files``; once only. Raises :class:`NoCopy`."""
    if plan.copied is not None:
        yield plan
        return
    try:
        place = ProjectCopy(Path.cwd(), files)
    except OSError as error:
        raise NoCopy(
            f"no copy of the working directory can be made ({error.strerror or error})"
        ) from None
    with place:
        yield place.plan(plan)


# -- the copy --------------------------------------------------------------------------------------


@dataclass
class _Budget:
    files: int
    size: int
    looks: int
    scratch: str

    def take(self, entry: os.DirEntry[str]) -> bool:
        """True if this file may be copied."""
        try:
            size = entry.stat().st_size
        except OSError:  # gone by now
            return False
        if size > FILE_LIMIT or size > self.size or not self.files:
            return False
        self.files, self.size = self.files - 1, self.size - size
        return True


def copy(project: Path, scratch: Path, files: Mapping[str, bytes | None] = NOTHING) -> Path:
    """Copy ``project`` below ``scratch`` and write ``files`` there; returns the copy's path."""
    kept = {str(parent) for path in files for parent in PurePosixPath(path).parents}
    folder = _surroundings(project, scratch)
    _mirror(
        str(project), folder, "", kept, _Budget(ENTRY_LIMIT, TREE_LIMIT, LOOK_LIMIT, str(scratch))
    )
    for path, content in files.items():
        target = folder / path
        if target.is_dir() and not target.is_symlink():  # where a file was in another version
            continue
        target.unlink(missing_ok=True)  # it may be a link: never write through one
        if content is None:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        with suppress(OSError):
            shutil.copymode(project / path, target)
    return folder


def _surroundings(project: Path, scratch: Path) -> Path:
    """The copy's folder, in copies of the folders around it that link to everything else."""
    around = [*project.parents][:LEVELS][::-1]
    here = scratch
    for parent, inner in zip(around, [*around[1:], project], strict=True):
        for entry in _entries(parent) or ():
            if entry.name != inner.name and not scratch.is_relative_to(entry.path):
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
            budget.looks -= 1
            if entry.path == budget.scratch:  # the folder for temporary files lies in the project
                continue
            if path in kept or (budget.looks > 0 and _worth_copying(entry)):
                (target / entry.name).mkdir()
                _mirror(entry.path, target / entry.name, f"{path}/", kept, budget)
            elif entry.is_file(follow_symlinks=False) and budget.take(entry):
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
    return _entries(entry.path) is not None and not os.path.isfile(
        os.path.join(entry.path, ENVIRONMENT)
    )
