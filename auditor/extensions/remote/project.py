"""What of the project is sent, and recordings that move between the folders of two machines."""

from __future__ import annotations

import json
import math
import os
import shlex
import stat
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

from auditor.model.devices import RECORDED_ON
from auditor.recordings.folder import MANIFEST, read_manifest, write_manifest
from auditor.runs.project_copy import LINKED, TREE_LIMIT, copy


def pack(archive: tarfile.TarFile, project: Path, name: str) -> list[str]:
    """Put the project into an archive as the folder ``name``: what ``audit verify`` copies, and of
    the files that it links, the smallest first, up to ``TREE_LIMIT`` bytes. Returns what was left
    out, relative to the project; version control, environments and logs go without saying.
    """
    with tempfile.TemporaryDirectory(prefix="audit-") as scratch:
        folder = copy(project.resolve(), Path(scratch).resolve())
        add(archive, folder, name)
        links = sorted((_size(path), path) for path in folder.rglob("*") if path.is_symlink())
        left, rest = TREE_LIMIT, list[str]()
        for size, path in links:
            inside = str(path.relative_to(folder))
            if size <= left:
                left -= int(size)
                add(archive, path.resolve(), f"{name}/{inside}")
            elif path.name not in LINKED:
                rest.append(inside)
    return rest


def add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Put a file or a folder into an archive, without links and without its owner."""
    archive.add(path, name, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    plain = member.isreg() or member.isdir()
    return member.replace(uid=0, gid=0, uname="", gname="", deep=False) if plain else None


def _size(link: Path) -> float:
    """Bytes of the file that a link leads to; infinite for anything else."""
    with suppress(OSError):
        found = link.stat()
        if stat.S_ISREG(found.st_mode):
            return found.st_size
    return math.inf


def word_there(word: str, project: str) -> str:
    """A word for the shell there: ``/project/x`` and ``--config=/project/x`` are below ``$here``."""
    option, equals, value = word.rpartition("=")
    if value == project or value.startswith(project.rstrip(os.sep) + os.sep):
        return f'{shlex.quote(option + equals)}"$here"{shlex.quote(value[len(project) :])}'
    return shlex.quote(word)


def move(recording: Path, old: str, new: str, host: str = "") -> None:
    """Make a recording of the directory ``old`` one of ``new``; ``host`` is where it was made. Its
    rows keep the paths that they have, which are below ``ran_in``.

    Raises :class:`UnreadableRecording`.
    """
    for path in recording.rglob(MANIFEST):
        manifest = read_manifest(path.parent)
        text = json.dumps(manifest).replace(json.dumps(old)[1:-1], json.dumps(new)[1:-1])
        manifest = {**json.loads(text), "cwd": new, "ran_in": manifest.get("ran_in") or old}
        if host:
            manifest["environment"] = {**(manifest.get("environment") or {}), RECORDED_ON: host}
        write_manifest(path.parent, manifest)
