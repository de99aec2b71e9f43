"""The user's sources as a recording keeps them: copied with secrets masked, and read as text."""

from __future__ import annotations

import hashlib
import linecache
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from auditor import redaction

SOURCES = "sources"
"""Folder of the copies, inside the recording."""


def decode_source(raw: bytes) -> str:
    """Python source text by its coding line, else UTF-8 with replacement; every line ends in a line
    feed.
    """
    import io
    import tokenize

    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        text = raw.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        text = raw.decode("utf-8", "replace")
    # Form feeds and other separators must not break lines: ast counts only \n, \r\n and \r.
    return (
        text.replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace("\x0c", " ")
        .replace("\x0b", " ")
        .replace("\x1c", " ")
    )


def store_sources(
    folder: Path, cwd: str, files: Iterator[str], ran: Callable[[str], str] = str
) -> dict[str, str]:
    """Copy user files into ``sources/``, with secrets masked; returns their stored name by
    :func:`path_from`. ``ran`` gives the path from which a file ran.
    """
    stored: dict[str, str] = {}
    for file in files:
        try:
            raw, _ = redaction.redacted(content_of(ran(file)), Path(file).suffix)
        except OSError:
            continue
        name = f"{content_digest(raw)}-{Path(file).name}".replace("\\", "_")
        (folder / SOURCES).mkdir(parents=True, exist_ok=True)
        (folder / SOURCES / name).write_bytes(raw)
        stored[path_from(cwd, file)] = name
    return stored


def masked_lines(
    cwd: str, files: Iterable[str], ran: Callable[[str], str] = str
) -> dict[str, list[int]]:
    """Lines of files whose secrets :func:`store_sources` masks, by :func:`path_from`; files without
    any are left out.
    """
    found = {}
    for file in files:
        with suppress(OSError):
            lines = [
                each.line
                for each in redaction.redacted(content_of(ran(file)), Path(file).suffix)[1]
            ]
            if lines:
                found[path_from(cwd, file)] = lines
    return found


def has_content(file: str) -> bool:
    """Whether :func:`content_of` would find it."""
    return os.path.isfile(on_disk(file)) or file in linecache.cache


def content_of(file: str) -> bytes:
    """What is in a file, or in a notebook's cell (``linecache``). Raises ``OSError``."""
    try:
        return Path(on_disk(file)).read_bytes()
    except OSError:
        lines = linecache.getlines(file)
        if not lines:
            raise
        return "".join(lines).encode()


def on_disk(path: str) -> str:
    r"""A path as the system has it: in a recording, bytes of a name that are not UTF-8 stand as
    escapes (``\udce9``).
    """
    if "\\udc" not in path or os.path.lexists(path):
        return path
    return re.sub(r"\\udc([89a-f][0-9a-f])", lambda found: chr(0xDC00 + int(found[1], 16)), path)


def path_from(cwd: str, file: str) -> str:
    """A file's path relative to the run's directory if below it, else as is; always with ``/``."""
    below = cwd.rstrip(os.sep) + os.sep
    return (file[len(below) :] if cwd and file.startswith(below) else file).replace(os.sep, "/")


def content_digest(raw: bytes) -> str:
    """What the name of a stored source begins with: of its bytes with secrets masked."""
    return hashlib.sha256(raw).hexdigest()[:16]
