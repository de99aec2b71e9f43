"""torch.save's format before 1.6: five pickles in a row, then the storages one behind the other."""

from __future__ import annotations

from functools import partial
from typing import IO, Any

from auditor.checkpoints import pickles
from auditor.checkpoints.container import Container
from auditor.checkpoints.contents import BYTES, Malformed, Storage, Stored

MAGIC = 0x1950A86A20F9469CFC6C
"""The first pickle of the file: torch.serialization.MAGIC_NUMBER."""

COUNT = 8
"""Bytes of the number of elements in front of each storage."""


def open_legacy(file: IO[bytes], size: int) -> Container:
    """Read the pickles and find the storages. Raises :class:`Malformed`."""
    file.seek(0)
    if pickles.load(file, size)[0] != MAGIC:
        raise Malformed("it begins like a pickle, and is not one that torch.save wrote")
    pickles.load(file, size)  # protocol version
    system, _ = pickles.load(file, size)
    tree, foreign = pickles.load(file, size)
    keys, _ = pickles.load(file, size)
    if not isinstance(keys, list):
        raise Malformed("the list of its storages is damaged")
    big = isinstance(system, dict) and system.get("little_endian") is False
    widths = {each.storage.key: _width(each.storage) for _, each in pickles.walk(tree) if isinstance(each, Stored)}
    places, damage = _places(file, [str(key) for key in keys], widths, size)
    return Container("torch legacy", tree, partial(_read, file, places), foreign, damage, big_endian=big)


def _width(storage: Storage) -> int:
    return BYTES.get(storage.dtype, 1)


def _places(file: IO[bytes], keys: list[str], widths: dict[str, int], size: int) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Where each storage begins, and its bytes. What lies behind a wrong number cannot be found."""
    places: dict[str, tuple[int, int]] = {}
    at = file.tell()
    for number, key in enumerate(keys):
        file.seek(at)
        elements = int.from_bytes(file.read(COUNT), "little", signed=True)
        length = elements * widths.get(key, 1)
        if elements < 0 or at + COUNT + length > size:
            return places, [f"it ends in storage {number + 1} of {len(keys)}: it was cut off or not written to its end"]
        places[key] = at + COUNT, length
        at += COUNT + length
    return places, []


def _read(file: IO[bytes], places: dict[str, tuple[int, int]], storage: Storage, first: int, size: int) -> bytes:
    place: Any = places.get(storage.key)
    if place is None:
        raise Malformed("its data is missing")
    start, length = place
    if first + size > length:
        raise Malformed(f"its storage has {length} bytes, and {first + size} are needed")
    file.seek(start + first)
    return file.read(size)
