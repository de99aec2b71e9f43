"""Many edits over many files: one plan, one diff, and files rewritten when the user asks."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from auditor.model import Edit
from auditor.patch.edits import apply_edits, edit_key
from auditor.patch.source import Refused
from auditor.patch.trees import is_beside, is_theirs, joined_diff, leads_out

CELL = re.compile(r"In\[\d+\]")
"""How a recording names a notebook's cell."""


@dataclass(frozen=True)
class PatchedFile:
    """One file before and after. ``path`` is relative to the directory of the run, with ``/``;
    absolute for one beside it.
    """

    path: str
    before: bytes
    after: bytes
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Plan:
    """What all edits come to. ``refused`` pairs each edit left out with one sentence why."""

    files: tuple[PatchedFile, ...] = ()
    refused: tuple[tuple[Edit, str], ...] = ()
    cwd: str = ""

    @property
    def diff(self) -> bytes:
        """All files in one unified diff, for ``git apply`` in the directory of the run.

        Where some lie beside it, in the innermost directory that holds them all, which the diff
        then names in its first line.
        """
        return joined_diff(((file.path, file.before, file.after) for file in self.files), self.cwd)


def plan(edits: Iterable[Edit], read: Callable[[str], bytes | None], *, cwd: str = "") -> Plan:
    """Plan the edits of any number of files; ``read`` gives a file's bytes by ``Site.file``, None
    if there is none.

    With ``cwd``, the directory of the run, source files beside it are patched too, else they are
    refused. Equal edits merge. An edit that cannot be made, or that conflicts with an earlier one,
    is refused; the rest goes on.
    """
    files: list[PatchedFile] = []
    refused: list[tuple[Edit, str]] = []
    by_file: dict[str, dict[tuple[str, ...], Edit]] = {}
    for edit in edits:
        path = posixpath.normpath(edit.site.file.replace(os.sep, "/"))
        by_file.setdefault(path, {}).setdefault(edit_key(edit), edit)
    for path, unique in sorted(by_file.items()):
        wanted = list(unique.values())
        try:
            before = _readable(path, wanted[0].site.file, read, cwd)
        except Refused as reason:
            refused += ((edit, str(reason)) for edit in wanted)
            continue
        after, made, left_out = _apply_what_can_be(before, wanted)
        refused += left_out
        if made:
            files.append(PatchedFile(path, before, after, made))
    return Plan(tuple(files), tuple(refused), cwd)


def write(plan: Plan, root: Path) -> None:
    """Rewrite the plan's files, each whole or not at all, keeping its mode. They lie below
    ``root``, or in a tree of the user's.

    Raises :class:`Refused` before anything is written if a file lies elsewhere or is not what was
    planned for, and ``OSError`` where one cannot be written: those before it are patched then.
    """
    for file, target in zip(plan.files, check(plan, root), strict=True):
        _replace(target, file.after)


def check(plan: Plan, root: Path) -> list[Path]:
    """Where the plan's files are below ``root``. Raises :class:`Refused` as :func:`write` does."""
    return [_checked_target(file, root.resolve()) for file in plan.files]


def _readable(path: str, file: str, read: Callable[[str], bytes | None], cwd: str) -> bytes:
    if leads_out(path) and not is_beside(path, cwd):
        raise Refused(f"{path} lies outside the directory of the run")
    if CELL.fullmatch(path):
        raise Refused(f"{path} is a notebook's cell: no file holds it")
    raw = read(file)
    if raw is None:
        raise Refused(f"{path} cannot be read")
    return raw


def _apply_what_can_be(
    before: bytes, wanted: Sequence[Edit]
) -> tuple[bytes, tuple[Edit, ...], list[tuple[Edit, str]]]:
    """With every edit that goes with those before it. What is refused together is tried in halves:
    a file is parsed as often as edits are refused, and not as often as there are edits.
    """
    after = before
    made: tuple[Edit, ...] = ()
    refused: list[tuple[Edit, str]] = []
    waiting = [tuple(wanted)]
    while waiting:
        block = waiting.pop()
        try:
            after, made = apply_edits(before, [*made, *block]), (*made, *block)
        except Refused as reason:
            half = len(block) // 2
            if half:
                waiting += [block[half:], block[:half]]
            else:
                refused.extend((edit, str(reason)) for edit in block)
    return after, made, refused


def _checked_target(file: PatchedFile, root: Path) -> Path:
    target = (root / file.path).resolve()  # a link must not lead out either
    if leads_out(posixpath.normpath(file.path)):
        if not is_theirs(file.path, str(root)):
            raise Refused(
                f"{file.path} lies outside {root}, and PYTHONPATH does not name its folder"
            )
    elif not target.is_relative_to(root):
        raise Refused(f"{file.path} lies outside {root}")
    try:
        now = target.read_bytes()
    except OSError as error:
        raise Refused(f"{file.path} cannot be read: {error.strerror}") from None
    if now != file.before:
        raise Refused(f"{file.path} has changed since the patch was made")
    return target


def _replace(target: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=".audit-", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        shutil.copymode(target, temporary)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
