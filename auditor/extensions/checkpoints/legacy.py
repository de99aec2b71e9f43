"""torch.save's format before 1.6: five pickles in a row, then the storages one behind the other."""

from __future__ import annotations

from functools import partial
from typing import IO, Any

from auditor.extensions.checkpoints import pickles
from auditor.extensions.checkpoints.container import Container
from auditor.extensions.checkpoints.contents import BYTES, Malformed, Storage
from auditor.extensions.checkpoints.tensors import NESTED

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
"""The first two pickles of the file: torch.serialization.MAGIC_NUMBER and PROTOCOL_VERSION."""

COUNT = 8
"""Bytes of the number of elements in front of each storage."""

TAR_HEADER, TAR_SUM = 512, slice(148, 156)
"""Bytes of the first block of a tar archive, and where in it its checksum is in octal
(POSIX.1-1988, ustar).
"""


def is_tar(head: bytes) -> bool:
    """True if torch would take the file for its oldest format, whatever its first bytes say: it
    tries tar before pickle.
    """
    if len(head) < TAR_HEADER:
        return False
    try:
        told = int(head[TAR_SUM].strip(b" \0") or b"-1", 8)
    except ValueError:
        return False
    rest = head[: TAR_SUM.start] + b" " * 8 + head[TAR_SUM.stop : TAR_HEADER]
    return told in (sum(rest), sum(byte - 256 if byte > 127 else byte for byte in rest))


def open_legacy(file: IO[bytes], size: int) -> Container:
    """Read the pickles and find the storages. Raises :class:`Malformed`."""
    file.seek(0)
    if is_tar(file.read(TAR_HEADER)):
        raise Malformed(
            "it is a tar archive, torch's oldest format, which is only loaded with "
            "weights_only=False"
        )
    foreign: set[str] = set()
    try:
        return _opened(file, size, foreign)
    except Malformed as problem:  # what was named before was called before
        problem.foreign = tuple(sorted({*foreign, *problem.foreign}))
        raise


def _opened(file: IO[bytes], size: int, foreign: set[str]) -> Container:
    at = 0

    def following(form: pickles.Form = "") -> pickles.Loaded:
        nonlocal at
        loaded = pickles.load(file, at, size - at, form)
        foreign.update(loaded.foreign)
        at = loaded.end
        return loaded

    if following().tree != MAGIC:
        raise Malformed("it begins like a pickle, and is not one that torch.save wrote")
    if following().tree != VERSION:
        raise Malformed("its version of the format is unknown: torch does not load it")
    following()  # of the machine that wrote it; the numbers are little-endian, whatever it says
    content = following("legacy")
    keys = following().tree
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise Malformed("the list of its storages is damaged")
    storages = {storage.key: storage for storage in content.storages}
    places, damage = _places(file, at, keys, storages, size)
    damage += _missing(keys, storages) + _unloadable(content)
    read, named = partial(_read, file, places), tuple(sorted(foreign))
    return Container(
        "torch legacy", content.tree, read, named, damage, made=content.made, beyond=content.beyond
    )


def _unloadable(content: pickles.Loaded) -> list[str]:
    """What torch writes in this format and cannot read from it: both want a storage's bytes before
    they are read.
    """
    said = []
    if any(storage.dtype == "bytes" for storage in content.storages):
        said.append("it has a storage without dtype, which torch does not load from the old format")
    if any(each.origin == NESTED for each in content.made):
        said.append("it has a nested tensor, which torch does not load from the old format")
    return said


def _missing(keys: list[str], storages: dict[str, Storage]) -> list[str]:
    """Storages that are named in one of the two places only."""
    lacking = sorted({*storages} - {*keys})
    return (
        [f"the data of {len(lacking)} of its storages is missing, {lacking[0][:40]} first"]
        if lacking
        else []
    )


def _places(
    file: IO[bytes], at: int, keys: list[str], storages: dict[str, Storage], size: int
) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Where each storage begins, and its bytes. What lies behind a wrong number cannot be found."""
    places: dict[str, tuple[int, int]] = {}
    for number, key in enumerate(keys):
        storage, which = storages.get(key), f"storage {number + 1} of {len(keys)}"
        if storage is None or key in places:
            return places, [f"{which} is one that no tensor has: torch does not load it"]
        file.seek(at)
        elements = int.from_bytes(file.read(COUNT), "little", signed=True)
        length = elements * BYTES.get(storage.dtype, 1)
        if elements < 0 or at + COUNT + length > size:
            return places, [f"it ends in {which}: it was cut off or not written to its end"]
        if elements != storage.numel:
            said = f"{which} has {elements} elements, and its tensors need {storage.numel}"
            return places, [said]
        places[key] = at + COUNT, length
        at += COUNT + length
    return places, [f"{size - at} bytes at its end belong to no storage"] if at != size else []


def _read(
    file: IO[bytes], places: dict[str, tuple[int, int]], storage: Storage, first: int, size: int
) -> bytes:
    place: Any = places.get(storage.key)
    if place is None:
        raise Malformed("its data is missing")
    start, length = place
    if first + size > length:
        raise Malformed(f"its storage has {length} bytes, and {first + size} are needed")
    file.seek(start + first)
    return file.read(size)
