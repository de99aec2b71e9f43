"""A columnar copy of a trace that was read before, in the user's cache: loading it takes a
hundredth of reading the text.

One file for each trace, named by the SHA-256 of the trace's bytes: the numbers of every table as
they lie in memory, and names, texts and facts as JSON. Nothing in it is run or unpickled. A copy
that is damaged, of another version, or not there is no error: the trace is read. The copies
together hold at most :data:`TOTAL_BYTES`; those that were used last stay.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from auditor.timeline.reading import read
from auditor.timeline.trace import TABLES, Info, Thread, Trace, schema
from auditor.typed_reading import decoder
from auditor.user_cache import FOLDER, user_cache

MAGIC = b"audit-columns/1\n"
LEAST_BYTES = 1 << 20
"""Files smaller than this are not copied: reading them takes less than 0.1 s."""
TOTAL_BYTES = 4 << 30
"""Bytes of all copies: those of about 40 GB of traces."""
HEAD_BYTES = 256 << 20
"""Bytes of a copy's JSON that are read at most."""
SUFFIX = ".columns"
ALIGNED = 8


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """All but the numbers of the tables. ``digest`` is the SHA-256 of the numbers that follow."""

    layout: str
    lengths: dict[str, int]
    digest: str
    raw_bytes: int
    events: int
    names: list[str]
    threads: list[tuple[str, str]]
    texts: list[str]
    counts: dict[str, int]
    info: Info
    warnings: list[str]


def _layout() -> str:
    """Columns and their types: a version with other columns reads no copy of this one."""
    columns = (
        (group, name, np.dtype(kind).str)
        for group, table in TABLES.items()
        for name, kind in schema(table)
    )
    return hashlib.sha256(repr((sys.byteorder, *columns)).encode()).hexdigest()


def folder() -> Path | None:
    """Where copies are kept; None where there is no such place, or ``AUDIT_CACHE_DIR`` is empty."""
    return None if os.environ.get(FOLDER) == "" else user_cache()


def read_once(path: Path) -> Trace:
    """The trace from its copy, else as :func:`auditor.timeline.read` reads it, which is then kept.
    Raises what that raises.
    """
    copy = before = None
    with contextlib.suppress(OSError):
        before, copy = _version(path), place(path)
    found = load(copy, str(path)) if copy is not None else None
    if found is not None:
        return found
    trace = read(path)
    with contextlib.suppress(OSError):
        if copy is not None and _version(path) == before:  # it may still be written
            save(trace, copy)
    return trace


def _version(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns


def place(trace: Path) -> Path | None:
    """The file for a trace's copy; None where none is kept. Raises ``OSError`` where the trace
    cannot be read.
    """
    home = folder()
    if home is None or trace.stat().st_size < LEAST_BYTES:
        return None
    digest = hashlib.sha256()
    with trace.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return home / f"{digest.hexdigest()}{SUFFIX}"


def load(copy: Path, path: str) -> Trace | None:
    """The trace that a copy holds, under ``path``; None where there is no whole copy of this
    version.
    """
    try:
        with copy.open("rb") as file:
            if (
                file.read(len(MAGIC)) != MAGIC
                or not 0 < (size := int.from_bytes(file.read(8), "little")) <= HEAD_BYTES
            ):
                return None
            head = decoder(_Head).decode(file.read(size))
            if head.layout != _layout():
                return None
            data = file.read()
        if hashlib.sha256(data).hexdigest() != head.digest:
            return None
        trace = _trace(head, data, path)
    except (OSError, ValueError, KeyError, MemoryError, msgspec.MsgspecError):
        return None
    with contextlib.suppress(OSError):
        os.utime(copy)  # used last
    return trace


def save(trace: Trace, copy: Path) -> None:
    """Write a copy, whole or not at all. Where that cannot be done (a full disk, a folder that is
    read-only) there is none.
    """
    pieces = list(_pieces(trace))
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    with contextlib.suppress(OSError, ValueError):  # of names that are no text, too
        head = msgspec.json.encode(_head(trace, digest.hexdigest()))
        size = len(head) + sum(map(len, pieces))
        if len(head) > HEAD_BYTES or size > TOTAL_BYTES // 2:
            return
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_room(copy.parent, size)
        _write(copy, (MAGIC, len(head).to_bytes(8, "little"), head, *pieces))


def _head(trace: Trace, digest: str) -> _Head:
    return _Head(
        _layout(),
        {group: len(getattr(trace, group).start) for group in TABLES},
        digest,
        trace.raw_bytes,
        trace.events,
        list(trace.names),
        [(each.pid, each.tid) for each in trace.threads],
        [text.decode("latin-1") for text in trace.texts],
        trace.counts,
        trace.info,
        list(trace.warnings),
    )


def _write(copy: Path, pieces: tuple[Any, ...]) -> None:
    handle, name = tempfile.mkstemp(prefix=".", suffix=".new", dir=copy.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
        os.replace(name, copy)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _make_room(home: Path, size: int) -> None:
    """Remove the copies that were used longest ago, until another of ``size`` bytes fits."""
    known = sorted(
        ((entry.stat(), entry) for entry in home.glob(f"*{SUFFIX}")),
        key=lambda each: each[0].st_mtime,
    )
    held = sum(facts.st_size for facts, _ in known)
    for facts, entry in known:
        if held + size <= TOTAL_BYTES:
            return
        entry.unlink(missing_ok=True)
        held -= facts.st_size


def _pieces(trace: Trace) -> Iterator[memoryview | bytes]:
    """Each column's bytes, and what makes the next one begin at a multiple of :data:`ALIGNED`."""
    for group, table in TABLES.items():
        for name, kind in schema(table):
            column = np.ascontiguousarray(getattr(getattr(trace, group), name), dtype=kind)
            yield column.view(np.uint8).data
            yield bytes(-column.nbytes % ALIGNED)


def _trace(head: _Head, data: bytes, path: str) -> Trace:
    """Raises ``ValueError`` or ``KeyError`` where the numbers are fewer, or more, than the head
    says.
    """
    tables, at = {}, 0
    for group, table in TABLES.items():
        columns, length = {}, head.lengths[group]
        for name, kind in schema(table):
            columns[name] = np.frombuffer(data, kind, length, at)
            at += columns[name].nbytes + -columns[name].nbytes % ALIGNED
        tables[group] = table(**columns)
    if at != len(data):
        raise ValueError("there are more numbers than the tables hold")
    return Trace(
        path=path,
        raw_bytes=head.raw_bytes,
        events=head.events,
        names=head.names,
        threads=[Thread(*each) for each in head.threads],
        texts=[text.encode("latin-1") for text in head.texts],
        **tables,
        counts=head.counts,
        info=head.info,
        warnings=tuple(head.warnings),
    )
