"""Traces for TensorBoard: a copy laid out in categories that torch-tb-profiler understands."""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

BLOCK = 1 << 20
"""Bytes of trace text that are read at a time."""

HELD_LIMIT = 64 * BLOCK
"""Bytes held at most while no event begins in them; longer stretches are passed on as is."""

# torch >= 1.13 writes categories that torch-tb-profiler 0.4.3 (its last release) does not know: it
# then shows no device time and no DataLoader time at all. Both orders of "cat" and "name" occur:
# Kineto writes cat first, re-dumped traces may not. A quote inside a JSON string is escaped, so a
# key cannot be mistaken for text.
_RUNTIME = re.compile(rb'("cat"\s*:\s*)"cuda_(?:runtime|driver)"')
_HOST_WORK = rb'"(?:enumerate\(DataLoader\)|Optimizer\.)'
_CAT_FIRST = re.compile(
    rb'("cat"\s*:\s*)"user_annotation"(\s*,\s*"name"\s*:\s*' + _HOST_WORK + rb")"
)
_NAME_FIRST = re.compile(
    rb'("name"\s*:\s*' + _HOST_WORK + rb'[^"\\]*"\s*,\s*"cat"\s*:\s*)"user_annotation"'
)

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def export(trace: Path, folder: Path, run: str, worker: str, time_ns: int) -> Path:
    """Write ``<folder>/<run>/<worker>.<time_ns>.pt.trace.json.gz`` from ``trace`` (compressed or
    not) and return its path.

    ``run`` becomes a run and ``worker`` a worker of the tab; characters that its file name pattern
    would misread (dots among them) become ``_``. ``worker`` should end in ``_<rank>``. Memory stays
    bounded whatever the trace's size. The file appears whole or not at all, because the tab reads a
    trace once and keeps it.

    Raises ``OSError`` or ``EOFError`` if the trace cannot be read.
    """
    home = folder / _safe(run)
    home.mkdir(parents=True, exist_ok=True)
    target = home / f"{_safe(worker)}.{time_ns:d}.pt.trace.json.gz"
    temporary = target.with_name(f".{target.name}.new")
    try:
        # Level 1: the copy is for looking at, and level 9 costs ten times the time for a fifth of
        # the size.
        with _opened(trace) as source, gzip.open(temporary, "wb", compresslevel=1) as sink:
            for piece in rewritten(source):
                sink.write(piece)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _opened(trace: Path) -> IO[bytes]:
    with trace.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(trace, "rb")) if compressed else trace.open("rb")


def rewritten(source: IO[bytes]) -> Iterator[bytes]:
    """The trace text of ``source`` in pieces, with the categories that the legacy tab reads."""
    held = b""
    while block := source.read(BLOCK):
        held += block
        # Cut where an event (or its args) begins: what is rewritten never reaches across a brace.
        cut = held.rfind(b"{") if len(held) < HELD_LIMIT else len(held)
        if cut > 0:
            yield _legacy(held[:cut])
            held = held[cut:]
    yield _legacy(held)


def _legacy(piece: bytes) -> bytes:
    # fwdbwd stays as it is: renamed, the tab fails on traces with stacks or modules.
    piece = _RUNTIME.sub(rb'\1"Runtime"', piece)
    piece = _CAT_FIRST.sub(rb'\1"cpu_op"\2', piece)
    return _NAME_FIRST.sub(rb'\1"cpu_op"', piece)


def _safe(name: str) -> str:
    return _UNSAFE.sub("_", name).strip("_") or "run"
