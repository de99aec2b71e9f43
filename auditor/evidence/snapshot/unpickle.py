"""Reads a pickle of plain containers, and nothing else: no class, no function, no code of the
writer's is ever looked up.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import gzip
import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from auditor.isolation import ReaderDied, isolated, seconds_for

SIZE_LIMIT = 2**30
"""Bytes of an unpacked pickle at most. Snapshots of long histories are hundreds of MB."""
MEMORY_AT_LEAST, MEMORY_PER_BYTE, MEMORY_LIMIT = 2**29, 16, 2**32
"""Bytes of memory that reading may take: real snapshots take less than ten times their size, a
hostile file the machine's.
"""
RATIO, UNPACKED_AT_LEAST = 200, 64 << 20
"""Bytes for each packed byte of a gzipped file at most, and of a small one: real snapshots inflate
some 20 times.
"""
TUPLES, DEEP = (b"\x85", b"\x86", b"\x87", b"t"), 5_000
"""Opcodes that put what is on the stack into a tuple, and how many of them may be inside each other
without harm: hashing takes some 100 bytes of stack a level."""
GZIP_MAGIC = b"\x1f\x8b"


class RefusedPickle(Exception):
    """The file is not a pickle of plain containers, or too large; the message is one sentence."""


class _PlainUnpickler(pickle.Unpickler):
    """Admits what pickle builds without a lookup: dict, list, tuple, set, str, bytes, int, float,
    bool, None.
    """

    def find_class(self, module: str, name: str) -> NoReturn:
        raise RefusedPickle(f"it asks for {module}.{name}: only plain containers are read")

    def persistent_load(self, pid: object) -> NoReturn:
        raise RefusedPickle("it refers to objects outside the file: only plain containers are read")


def load_plain(path: Path, limit: int = SIZE_LIMIT) -> Any:
    """The plain data in a pickle file, which may be gzipped. Raises :class:`RefusedPickle`."""
    try:
        content = _unpacked(path, limit)
        more = min(MEMORY_LIMIT, MEMORY_AT_LEAST + MEMORY_PER_BYTE * len(content))
        _rehearse(content, more)
        with memory_capped(more), no_collections():  # nothing in it can be garbage yet
            return _PlainUnpickler(io.BytesIO(content)).load()
    except RefusedPickle as refused:
        raise RefusedPickle(f"{path.name} was not read: {refused}") from None
    except Exception as error:  # a hostile stream may raise almost anything
        raise RefusedPickle(f"{path.name} is no readable pickle: {type(error).__name__}") from None


def _rehearse(content: bytes, more: int) -> None:
    """Read it once in a process that may die of it: a tuple 200,000 deep as a key overflows the
    stack of whoever hashes it.

    Only where it has tuples enough; opcodes are counted as bytes, so long texts are rehearsed too.
    """
    if sum(map(content.count, TUPLES)) < DEEP:
        return

    def read() -> None:
        faulthandler.disable()
        with no_collections():
            _PlainUnpickler(io.BytesIO(content)).load()

    try:
        isolated(read, (RefusedPickle,), seconds=seconds_for(len(content)), memory=more)
    except ReaderDied as problem:
        raise RefusedPickle(str(problem)) from None


def _unpacked(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
    if packed:
        limit = min(limit, max(UNPACKED_AT_LEAST, RATIO * path.stat().st_size))
    with gzip.open(path) if packed else path.open("rb") as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise RefusedPickle(f"it is larger than {limit} bytes")
    return content


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Millions of new containers would be walked again and again."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextlib.contextmanager
def memory_capped(more: int) -> Iterator[None]:
    """The process gets ``more`` bytes at most meanwhile, where the system can do that: ten bytes
    may ask for a table of 64 GB.
    """
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        cap = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + more
        resource.setrlimit(
            resource.RLIMIT_AS, (cap if soft == resource.RLIM_INFINITY else min(soft, cap), hard)
        )
    except (ImportError, OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
