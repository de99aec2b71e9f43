"""Which files a report may have edited: sources of the user's, and nothing that tools, packages or
links keep beside them.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from auditor.model import Action
from auditor.patch.source import Refused
from auditor.patch.trees import base_of, leads_out
from auditor.syntax.config_files import SUFFIXES

_INSTALLED = frozenset(
    {"site-packages", "dist-packages", "node_modules", "__pycache__", "__pypackages__"}
)
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
"""What makes a folder an environment of Python's, whatever its name."""

_GIT_SECONDS = 20.0

MOST_BYTES = 4 * 1024 * 1024
"""No file of source is larger."""


def require_own_name(file: str, action: Action) -> None:
    """Raise :class:`Refused` if no rule would edit a file of this name: it is hidden, a package's,
    or no source.
    """
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
    for each in _steps(base or os.sep, inside):
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


class OwnFiles:
    """Sources of the user's as they are now, by their names in a report; ``names`` may hold
    anything, and others are not read.
    """

    def __init__(self, root: Path, names: Iterable[str]) -> None:
        self._root = root
        self.names = tuple(dict.fromkeys(names))

    def read(self, name: str) -> bytes | None:
        """The file's bytes; None for one that is none of the user's sources, or too large to be
        one.
        """
        try:
            require_own_file(self._root, name, "set_keyword")
            path = self._root / name
            return path.read_bytes() if path.stat().st_size <= MOST_BYTES else None
        except (Refused, OSError, ValueError):
            return None


def _require_own_folders(folder: str, path: str) -> None:
    for part in folder.split("/"):
        if part in _INSTALLED:
            raise Refused(f"{path} belongs to an installed package")
        if part.startswith(".") and part not in (".", ".."):
            raise Refused(f"{path} lies in a hidden folder")


def _steps(base: str, inside: str) -> Iterator[str]:
    for part in inside.split("/"):
        base = os.path.join(base, part)
        yield base


def _is_ignored(path: str, root: str) -> bool:
    """True if git keeps the file out of the repository that it lies in. Where the whole project is
    kept out, that says nothing.
    """
    git = shutil.which("git")
    folder, name = os.path.split(path)
    if git is None or not _in_repository(folder):
        return False
    listed = _git(
        git,
        folder,
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        f":(literal){name}",
    )
    if listed is None or listed:
        return False
    return _git(git, root, "check-ignore", ".") == b""


def _in_repository(folder: str) -> bool:
    return any(
        os.path.lexists(os.path.join(each, ".git"))
        for each in (folder, *map(str, Path(folder).parents))
    )


def _git(git: str, folder: str, *words: str) -> bytes | None:
    """What git prints; None where it refuses. No hook and no monitor that the repository names is
    run.
    """
    quiet = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
    try:
        done = subprocess.run(
            [git, "-C", folder, *quiet, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
            env={**os.environ, "GIT_LITERAL_PATHSPECS": "0", "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode in (0, 1) else None
