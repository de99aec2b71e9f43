"""Writing the folder that a run leaves, in the recording process: whatever the target does to its
process or to the disk.

A target may fork, close files that it did not open, change the umask, fill the disk, or hand us
text that no encoding takes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from os import close, fchmod, fstat, replace, write  # ours also where a target puts its own in os
from os import open as open_file
from pathlib import Path
from typing import Any

import msgspec

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
        """The same of a row without types (a tool's own); ``part`` is the file's stem."""
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
        """Make the part exist even if it stays empty: *looked and saw nothing* differs from *not
        looked*.
        """
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
        """Write all of it. Raises ``OSError`` where the disk takes only a part."""
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
    """The same with exact types and text that can be encoded."""
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
