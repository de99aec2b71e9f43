"""Turns declarative edits into a unified diff of the user's own file that ``git apply`` accepts, or
says why not.

Standard library only: ``ast`` gives exact spans, edits are spliced into the text, ``difflib`` makes
the diff. Each result is parsed again and its tree compared with the intended change, so comments
and layout around an edit cannot move. libcst would do the same at 24 times the time on a 3,000-line
file, and is a dependency more.
"""

import ast
import difflib
import os
import posixpath
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

from auditor.model import Edit
from auditor.patch.edits import apply_edits, edit_key
from auditor.patch.module import Module, Refused, SourceText
from auditor.patch.trees import (
    diff_bytes,
    is_beside,
    is_theirs,
    joined_diff,
    leads_out,
    place_of,
    require_own_file,
    shows_line,
)
from auditor.syntax.index import grouped, is_path, name_of, unparsed

KNOWN = frozenset({"torch", "torchvision", "torch_geometric", "monai"})
"""Libraries whose functions take what torch's of the same name take."""

REWRITES = frozenset({"set_keyword", "drop_keyword", "rename_call", "modernize_amp"})
"""Edits that leave a call behind: it must take what is written."""


def another_librarys(
    edits: Iterable[Edit], read: Callable[[str], bytes | None], manifest: Mapping[str, Any]
) -> str:
    """Why these edits are not made: the first call of another library's function, in one sentence;
    empty if there is none.

    A function of the program's own is none: the line that was seen is in it, not where it is called.
    Nor is a call that is given the keyword already, unless it is the standard library's.
    """
    own = {
        PurePath(part).stem
        for file in manifest.get("sources") or ()
        for part in PurePath(file).parts
    }
    for edit in edits:
        raw = read(edit.site.file) if edit.call and edit.action in REWRITES else None
        if raw is None:
            continue
        try:
            module, homes = _parsed(raw)
            module.expect_line(edit)
            calls = module.calls(edit)
        except Refused:
            continue  # the patcher says why
        for call in calls:
            root = unparsed(call.func).partition(".")[0] if is_path(call.func) else ""
            given = any(item.arg == edit.keyword for item in call.keywords)
            for home in homes.get(root, ()):
                if home not in KNOWN | own and (not given or home in sys.stdlib_module_names):
                    return (
                        f"line {edit.site.line} of {edit.site.file} calls `{name_of(call.func)}` "
                        f"of {home}, which need not take what torch's does"
                    )
    return ""


@lru_cache(maxsize=4)
def _parsed(raw: bytes) -> tuple[Module, Mapping[str, list[str]]]:
    module = Module(SourceText.from_bytes(raw))
    return module, grouped(_homes(module.parents))


def _homes(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                top = item.name.partition(".")[0]
                yield item.asname or top, top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            top = (node.module or "").partition(".")[0]
            yield from ((item.asname or item.name, top) for item in node.names)


# -- standing --------------------------------------------------------------------------------------
# Which of a report's edits a file has already: told from the file as it was recorded and as it is
# now.


def made_already(recorded: bytes, current: bytes, edits: Sequence[Edit]) -> tuple[Edit, ...] | None:
    """The edits that turn ``recorded`` into ``current``; None if something else changed as well."""
    if current == recorded:
        return ()
    if _applied(recorded, edits) == current:
        return tuple(edits)
    made: tuple[Edit, ...] = ()
    text = recorded
    for edit in edits:
        after = _applied(recorded, [*made, edit])
        if after is not None and _distance(after, current) < _distance(text, current):
            made, text = (*made, edit), after
    return made if text == current else None


def _applied(recorded: bytes, edits: Sequence[Edit]) -> bytes | None:
    try:
        return apply_edits(recorded, edits)
    except Refused:
        return None


def _distance(one: bytes, other: bytes) -> int:
    matcher = difflib.SequenceMatcher(None, one.splitlines(), other.splitlines(), autojunk=False)
    return sum(max(b - a, d - c) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal")


# -- patch -----------------------------------------------------------------------------------------

__all__ = [
    "PatchedFile",
    "Plan",
    "Refused",
    "SourceText",
    "another_librarys",
    "apply_edits",
    "check",
    "diff_bytes",
    "is_theirs",
    "joined_diff",
    "leads_out",
    "made_already",
    "place_of",
    "plan",
    "require_own_file",
    "shows_line",
    "write",
]


# -- plan ------------------------------------------------------------------------------------------
# Many edits over many files: one plan, one diff, and files rewritten when the user asks.


CELL = re.compile(r"In\[\d+\]")
"""How a recording names a notebook's cell."""


@dataclass(frozen=True)
class PatchedFile:
    """One file before and after; ``path`` relative to the run's directory, absolute beside it."""

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
    is refused; the rest proceeds.
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
