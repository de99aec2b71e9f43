"""Writing the folder that a run leaves, in the recording process: whatever the target does to its
process or to the disk.

A target may fork, close files that it did not open, change the umask, fill the disk, or hand us
text that no encoding takes.
"""

import hashlib
import linecache
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from os import close, fchmod, fstat, replace, write  # ours also where a target puts its own in os
from os import open as open_file
from pathlib import Path
from typing import Any

import msgspec

from auditor import redaction
from auditor.errors import plain
from auditor.recordings.row import Row
from auditor.recordings.schema.run import SiteRow

MANIFEST = "manifest.json"
SITES = SiteRow.part

Fields = Mapping[str, Any]
"""A row without a type."""

Spelled = Callable[[str], str]
"""How files are written down."""

LONGEST_TEXT = 1 << 20
"""Characters of one text in a row at most, where the row cannot be encoded as it is."""

SPAN = ("opcode", "first_line", "end_line", "col", "end_col", "via")
"""What else is known of a place than file, line and function."""


class RecordingWriter:
    """Appends rows to parts. Rows reach the file at :meth:`flush`, and only from the process that
    made the writer.

    A disk that is full ends the writing, never the target: ``lost`` then says in words what
    happened. With ``spelled`` files are written down as it says (a program that runs in a copy of
    its project is shown as the project's own).
    """

    def __init__(self, folder: Path, spelled: Spelled | None = None) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.lost = ""
        self.spelled = spelled
        self._rows: dict[str, list[Row | Fields]] = {}
        self._files: dict[str, AppendedFile] = {}
        self._sites: dict[tuple[Any, ...], int] = {}
        self._process = os.getpid()
        mask = os.umask(0o077)
        os.umask(mask)
        self._mode = 0o666 & ~mask

    @property
    def forked(self) -> bool:
        """True in a process that the target forked: its rows would mix with the first's."""
        return os.getpid() != self._process

    def add(self, row: Row) -> None:
        """Buffer one row."""
        self._buffer(row.part, row)

    def add_fields(self, part: str, fields: Fields) -> None:
        """Write a row without types (a tool's own); ``part`` is the file's stem."""
        self._buffer(part, fields)

    def _buffer(self, part: str, row: Row | Fields) -> None:
        rows = self._rows.get(part)
        if rows is None:
            rows = self._rows[part] = []
        rows.append(row)

    def site(self, file: str, line: int, function: str, **more: Any) -> int:
        """Number of a place in the source; ``more`` may hold ``opcode``, ``first_line``,
        ``end_line``, ``col``, ``end_col``, ``via``.
        """
        file = file if self.spelled is None else self.spelled(file)
        key = (file, line, function, *map(more.get, SPAN))
        number = self._sites.get(key)
        if number is None:
            number = self._sites[key] = len(self._sites)
            self.add(SiteRow(id=number, file=file, line=line, function=function, **more))
        return number

    def touch(self, part: str) -> None:
        """Make the part exist, even empty: *looked and saw nothing* differs from *not looked*."""
        self._rows.setdefault(part, [])

    def flush(self) -> None:
        """Write what is buffered, sites first."""
        for part in (SITES, *(name for name in self._rows if name != SITES)):
            rows = self._rows.get(part)
            if rows is None:
                continue
            if not self.forked and not self.lost:
                self._write(part, rows)
            rows.clear()

    def _write(self, part: str, rows: list[Row | Fields]) -> None:
        try:
            file = self._files.get(part)
            if file is None:
                file = self._files[part] = AppendedFile(self.folder / f"{part}.jsonl", self._mode)
            if rows:
                file.write(b"".join(encoded(row, self.spelled) + b"\n" for row in rows))
        except OSError as error:
            self.lose(error)

    def lose(self, error: OSError) -> None:
        """Remember that something could not be written; nothing more is."""
        self.lost = (
            self.lost
            or f"{self.folder} cannot be written: {error.strerror or plain(str(error), 200)}"
        )

    def save(self, manifest: Fields) -> None:
        """Write the manifest as things stand."""
        if self.forked:
            return
        try:
            write_manifest(self.folder, manifest, mode=self._mode, spelled=self.spelled)
        except OSError as error:
            self.lose(error)

    def close(self) -> None:
        """Flush and close all files."""
        self.flush()
        for file in self._files.values():
            file.close()
        self._files.clear()


class AppendedFile:
    """A file that is only added to, by its number.

    A target that closes all files (``os.closerange``, a daemon in the making) closes this one, too,
    and the next file that it opens may get the same number: before each write the number must still
    lead to our file. If not, it is opened again.
    """

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        self._path, self._mode = path, mode
        self._open()

    def _open(self) -> None:
        self._number = open_file(
            self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, self._mode
        )
        with suppress(OSError):  # a file system without modes
            fchmod(self._number, self._mode)  # whatever umask the target has set
        self._identity = identity_of(self._number)

    @property
    def _is_ours(self) -> bool:
        return identity_of(self._number) == self._identity

    def write(self, data: bytes) -> None:
        """Write all of it. Raises ``OSError`` if the disk takes only a part."""
        if not self._is_ours:
            self._open()
        _write_all(self._number, data)

    def close(self) -> None:
        """Close it, if it still is this one."""
        if self._is_ours:
            close(self._number)


def identity_of(number: int) -> tuple[int, int] | None:
    """Device and inode of an open file; None if there is none of this number."""
    try:
        state = fstat(number)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def encoded(row: Row | Fields, spelled: Spelled | None = None) -> bytes:
    """One row as JSON; lone surrogates (of names that are not UTF-8) as their escapes."""
    try:
        data = _encode(row)
        if spelled is None or spelled(text := data.decode()) == text:
            return data
    except (UnicodeError, TypeError, ValueError, RecursionError):
        pass
    fields = msgspec.to_builtins(row, enc_hook=_exact) if isinstance(row, Row) else row
    return _encode(_plain(fields, spelled))


_encode = msgspec.json.Encoder().encode


def _exact(value: Any) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    raise NotImplementedError(f"a row cannot hold a {type(value).__name__}")


def _plain(value: Any, spelled: Spelled | None) -> Any:
    """The value with exact types and text that can be encoded."""
    if isinstance(value, str):
        text = plain(value, LONGEST_TEXT)
        return text if spelled is None else spelled(text)
    if isinstance(value, dict):
        return {
            _plain(key, spelled) if isinstance(key, str) else key: _plain(each, spelled)
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(each, spelled) for each in value]
    return value


def write_manifest(
    folder: Path, manifest: Fields, *, mode: int | None = None, spelled: Spelled | None = None
) -> None:
    """Write ``manifest.json`` whole or not at all (file, then rename). Raises ``OSError``."""
    temporary = folder / (MANIFEST + ".new")
    data = msgspec.json.format(encoded(manifest, spelled), indent=2)
    try:
        try:
            _write_new(temporary, data, mode)
        except FileNotFoundError:  # the target removed the folder
            folder.mkdir(parents=True, exist_ok=True)
            _write_new(temporary, data, mode)
        replace(temporary, folder / MANIFEST)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _write_new(path: Path, data: bytes, mode: int | None) -> None:
    number = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        if mode is not None:
            fchmod(number, mode)
        _write_all(number, data)
    finally:
        close(number)


def _write_all(number: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[write(number, view) :]


# -- sources ---------------------------------------------------------------------------------------
# The user's sources as a recording keeps them: copied with secrets masked, and read as text.


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
    """Lines of files whose secrets :func:`store_sources` masks, by :func:`path_from`."""
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
