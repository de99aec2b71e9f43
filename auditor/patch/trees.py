"""Files beside the run's directory: which are the user's, and from where a diff is applied."""

import difflib
import itertools
import os
import posixpath
import re
import stat
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from auditor.git import git
from auditor.model import Action
from auditor.patch.module import Refused
from auditor.syntax.config_files import SUFFIXES

_INSTALLED = frozenset(
    {"site-packages", "dist-packages", "node_modules", "__pycache__", "__pypackages__"}
)

Changed = tuple[str, bytes, bytes]
"""Path of a file, relative to the run's directory if below it; its bytes before and after."""


def leads_out(path: str) -> bool:
    """True for a path that does not stay below the directory it is read from."""
    return os.path.isabs(path) or posixpath.isabs(path) or (path + "/").startswith("../")


def is_beside(path: str, cwd: str) -> bool:
    """True if a path may be a source file beside ``cwd``: absolute, plain, not installed."""
    plain = os.path.isabs(path) and os.path.normpath(path) == path.replace("/", os.sep)
    if (
        not cwd
        or not plain
        or _INSTALLED.intersection(Path(path).parts)
        or _below(path, _library())
    ):
        return False
    return base_of(cwd, [path]) != ""


def is_theirs(path: str, cwd: str) -> bool:
    """True if a file beside ``cwd`` belongs to the user, as far as this machine tells.

    It lies in the git repository that ``cwd`` is in, or in a source tree that PYTHONPATH names.
    """
    real = os.path.realpath(path)
    if not is_beside(path, cwd) or not is_beside(real, cwd):
        return False
    return any(_below(real, [tree]) for tree in _trees(cwd))


def base_of(cwd: str, paths: Iterable[str]) -> str:
    """The innermost directory that holds ``cwd`` and all paths; empty if that is the root."""
    try:
        base = os.path.commonpath([cwd, *(os.path.join(cwd, path) for path in paths)])
    except ValueError:  # on other drives
        return ""
    return "" if os.path.dirname(base) == base else base


def joined_diff(changes: Iterable[Changed], cwd: str) -> bytes:
    """All files in one unified diff. Where some lie beside ``cwd``, its first line says where it is
    to be applied.

    Raises :class:`Refused` if the files have no directory in common.
    """
    listed = list(changes)
    base = place_of((path for path, _, _ in listed), cwd)
    parts = [diff_bytes(before, after, _from(base, path, cwd)) for path, before, after in listed]
    said = f"The paths begin in {base}: git -C {base} apply\n" if base else ""
    return said.encode(errors="replace") + b"".join(parts) if any(parts) else b""


def place_of(paths: Iterable[str], cwd: str) -> str:
    """Where a diff of these files is applied; empty for the run's own. Raises :class:`Refused`."""
    listed = list(paths)
    if not any(map(os.path.isabs, listed)):
        return ""
    base = base_of(cwd, listed)
    if not base:
        raise Refused("the files have no directory in common")
    return base


def _from(base: str, path: str, cwd: str) -> str:
    return os.path.relpath(os.path.join(cwd, path), base).replace(os.sep, "/") if base else path


def _trees(cwd: str) -> Iterator[str]:
    for folder in (cwd, *map(str, Path(cwd).parents)):
        if os.path.exists(os.path.join(folder, ".git")):
            yield folder
            break
    yield from (
        os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each
    )


def _library() -> list[str]:
    return [
        path
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_path(name))
    ]


def _below(path: str, folders: Iterable[str]) -> bool:
    roots = (os.path.realpath(folder).rstrip(os.sep) + os.sep for folder in folders)
    return any(
        (os.path.realpath(path) + os.sep).startswith(root) and root != os.sep for root in roots
    )


# -- whose files a report may have edited ----------------------------------------------------------


_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
"""What makes a folder an environment of Python's, whatever its name."""


def require_own_name(file: str, action: Action) -> None:
    """Raise :class:`Refused` for a file that no rule edits: hidden, a package's, no source."""
    path = posixpath.normpath(file.replace(os.sep, "/"))
    folder, name = posixpath.split(path)
    if not file or "\0" in file:
        raise Refused("it names no file")
    suffix = posixpath.splitext(name)[1].lower() or name
    if suffix not in (SUFFIXES if action == "set_value" else (".py", ".pyw")):
        raise Refused(f"{path} is no file that {action} is for")
    if not posixpath.isabs(path) and not os.path.isabs(path):
        _require_own_folders(folder, path)
    elif _INSTALLED.intersection(folder.split("/")):
        raise Refused(f"{path} belongs to an installed package")
    if name.startswith(".") and action != "set_value":
        raise Refused(f"{path} is hidden")


def require_own_file(root: Path, file: str, action: Action) -> None:
    """As :func:`require_own_name`, and by what lies there: no link, no environment's, nothing that
    git ignores.

    ``root`` is the directory of the run. A file that is not there passes: nothing can be made of
    it.
    """
    require_own_name(file, action)
    path = os.path.join(str(root), posixpath.normpath(file.replace(os.sep, "/")))
    base = str(root) if not leads_out(os.path.relpath(path, root)) else base_of(str(root), [path])
    inside = os.path.relpath(path, base or os.sep).replace(os.sep, "/")
    _require_own_folders(posixpath.dirname(inside), inside)
    steps = itertools.accumulate(inside.split("/"), os.path.join, initial=base or os.sep)
    for each in itertools.islice(steps, 1, None):
        if os.path.islink(each):
            raise Refused(f"{file} is reached through a link")
        if any(os.path.lexists(os.path.join(each, mark)) for mark in _ENVIRONMENT):
            raise Refused(f"{file} belongs to an environment of Python's")
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise Refused(f"{file} is no regular file")
    except (OSError, ValueError):
        return
    if _is_ignored(path, str(root)):
        raise Refused(f"{file} is ignored by git, so it is no source")


def _require_own_folders(folder: str, path: str) -> None:
    for part in folder.split("/"):
        if part in _INSTALLED:
            raise Refused(f"{path} belongs to an installed package")
        if part.startswith(".") and part not in (".", ".."):
            raise Refused(f"{path} lies in a hidden folder")


def _is_ignored(path: str, root: str) -> bool:
    """True if git keeps the file out of its repository, unless it keeps out the whole project."""
    folder, name = os.path.split(path)
    if not any(
        os.path.lexists(os.path.join(each, ".git"))
        for each in (folder, *map(str, Path(folder).parents))
    ):
        return False
    kinds = ("--cached", "--others", "--exclude-standard")
    listed = git(folder, "ls-files", "-z", *kinds, "--", f":(literal){name}", one_is_fine=True)
    if listed is None or listed:
        return False
    return git(root, "check-ignore", ".", one_is_fine=True) == b""


# -- diff ------------------------------------------------------------------------------------------

_CONTEXT = 3
_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+", re.MULTILINE)
_NO_NEWLINE = b"\n\\ No newline at end of file\n"
_ESCAPES = {
    byte: f"\\{letter}" for byte, letter in zip(b'\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True)
}


def diff_bytes(before: bytes, after: bytes, path: str) -> bytes:
    """Diff of one file with headers ``a/path`` and ``b/path``; empty if nothing changed.

    There is no ``diff --git`` line: with one, git reads paths from the top of the repository
    instead of from the working directory, and silently skips the file when it is run in a folder
    below. Where a path starts with the name of that very folder (``project/step.py`` applied in
    ``repo/project``), git guesses wrong and needs ``git apply -p1``.
    """
    old, new = _lines(before), _lines(after)
    # Latin-1 maps each byte to one character and back, so difflib may compare any bytes.
    body = list(difflib.unified_diff(old, new, n=_CONTEXT))[2:]
    if not body:
        return b""
    hunks = (
        line.encode("latin-1") if line.endswith("\n") else line.encode("latin-1") + _NO_NEWLINE
        for line in body
    )
    return b"".join([_header("---", f"a/{path}"), _header("+++", f"b/{path}"), *hunks])


def shows_line(diff: bytes, lines: Collection[int]) -> bool:
    """True if a hunk of one file's diff shows one of these lines (from 1) of the file before."""
    hunks = ((int(found[1]), int(found[2] or 1)) for found in _HUNK.finditer(diff))
    return any(first <= line < first + count for first, count in hunks for line in lines)


def _lines(raw: bytes) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", raw.decode("latin-1"))


def _header(mark: str, path: str) -> bytes:
    # As git writes it: a tab ends a name with spaces, so that no reader takes its tail for a date.
    return f"{mark} {quote_path(path)}{'	' if ' ' in path else ''}\n".encode("ascii")


def quote_path(path: str) -> str:
    """A path as git prints it: in C quotes with octal bytes unless it is printable ASCII."""
    raw = os.fsencode(path)
    text = "".join(
        _ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in raw
    )
    return f'"{text}"' if text != path else path
