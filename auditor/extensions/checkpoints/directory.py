"""The directory of a zip archive, read strictly: where two readers could see two archives, there is
none.

Python's zipfile and torch's reader (miniz) differ in where they look for the directory's end, in
whether they shift its offsets, and in whose words they take for a record: the directory's or the
record's own header. Layout: PKWARE's APPNOTE.TXT, 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct, unpack_from
from typing import IO

from auditor.extensions.checkpoints.contents import Malformed

END, END64, LOCATOR = Struct("<4s4H2LH"), Struct("<4sQ2H2L4Q"), Struct("<4sLQL")
ENTRY, HEADER = Struct("<4s6H3L5H2L"), Struct("<4s5H3L2H")
END_MAGIC, END64_MAGIC, LOCATOR_MAGIC = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
ENTRY_MAGIC, HEADER_MAGIC = b"PK\x01\x02", b"PK\x03\x04"

FULL = 0xFFFFFFFF
"""In the place of a number that is in the extra field for 64 bits."""
EXTRA64 = 1
"""Tag of that extra field."""
LATER, UTF8, LEVELS = 8, 0x800, 6
"""Flags that torch reads: sizes and checksum stand behind the data; names are UTF-8; the level of a
compression, which is none. Others are of encryption and of patches.
"""

COMMENT = 0xFFFF
"""Bytes of a comment behind the directory at most."""

DIRECTORY_LIMIT = 2**27
"""Bytes of a directory at most: a million records have 100 MB."""

CUT = (
    "its directory, which stands at the end, is missing or damaged: it was cut off or not written "
    "to its end"
)


@dataclass(frozen=True)
class Record:
    """One file of the archive: where its bytes lie, and what their CRC-32 should be."""

    name: str
    start: int
    size: int
    crc: int


@dataclass(frozen=True)
class _Entry:
    """One entry of the directory."""

    raw: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int

    @property
    def name(self) -> str:
        return self.raw.decode("utf-8", "replace")


def records_of(
    file: IO[bytes], size: int, expect: Callable[[list[str]], None] = lambda names: None
) -> list[Record]:
    """All records in the order of the directory. Raises :class:`Malformed`, and what ``expect``
    raises, which is asked about their names before any is looked at.
    """
    begin, length, count = _end(file, size)
    if length > DIRECTORY_LIMIT:
        raise Malformed("its directory is larger than any checkpoint needs")
    file.seek(begin)
    entries = _entries(file.read(length), count)
    expect([entry.name for entry in entries])
    records = [_located(file, entry, begin) for entry in entries]
    places = sorted(
        (entry.offset, record.start + record.size)
        for entry, record in zip(entries, records, strict=True)
    )
    if any(end > after for (_, end), (after, _) in pairwise(places)):
        raise Malformed("its records overlap")
    if places and places[0][0]:
        raise Malformed(
            f"its first record begins at byte {places[0][0]}: something is in front of the archive"
        )
    return records


def _end(file: IO[bytes], size: int) -> tuple[int, int, int]:
    """Begin, length and number of entries of the directory; it must reach to its end, and that to
    the end of the file.
    """
    if size < END.size:
        raise Malformed(CUT)
    file.seek(size - END.size)
    magic, disk, first, here, count, length, begin, comment = END.unpack(file.read(END.size))
    if magic != END_MAGIC:
        raise Malformed(_without_end(file, size))
    if comment or disk or first or here != count:
        raise Malformed("its directory has several parts, which torch.save never writes")
    end, told = size - END.size, (begin, length, count)
    file.seek(max(0, end - LOCATOR.size))
    locator = file.read(LOCATOR.size)
    if len(locator) == LOCATOR.size and locator.startswith(LOCATOR_MAGIC):
        end, told = _end64(file, end - LOCATOR.size, LOCATOR.unpack(locator)[2], told)
    if told[0] + told[1] != end:
        raise Malformed(
            "its directory is not where it says: something is in front of the archive or inside it"
        )
    return told


def _without_end(file: IO[bytes], size: int) -> str:
    """Why the file does not end with its directory's end: a comment or more stands behind it, or
    nothing is there.
    """
    begin = max(0, size - END.size - COMMENT)
    file.seek(begin)
    tail = file.read(size - begin)
    at = tail.rfind(END_MAGIC)
    behind = len(tail) - at - END.size
    if at < 0 or behind < 0:
        return CUT
    if END.unpack_from(tail, at)[-1] == behind:
        return f"its directory has a comment of {behind} bytes, which torch.save never writes"
    return f"{behind} bytes stand behind its directory, which torch.save never writes"


def _end64(
    file: IO[bytes], behind: int, at: int, short: tuple[int, int, int]
) -> tuple[int, tuple[int, int, int]]:
    if at + END64.size != behind:
        raise Malformed("its directory of 64 bits is not where it says")
    file.seek(at)
    magic, _, _, _, disk, first, here, count, length, begin = END64.unpack(file.read(END64.size))
    told = (begin, length, count)
    agrees = all(small in (large, FULL, 0xFFFF) for small, large in zip(short, told, strict=True))
    if magic != END64_MAGIC or disk or first or here != count or not agrees:
        raise Malformed("its directories of 32 and 64 bits contradict each other")
    return at, told


def _entries(raw: bytes, count: int) -> list[_Entry]:
    entries, at = [], 0
    for _ in range(count):
        if at + ENTRY.size > len(raw):
            raise Malformed("its directory is damaged: it is shorter than it says")
        magic, _, _, flags, method, _, _, crc, packed, full, *rest = ENTRY.unpack_from(raw, at)
        name, extra, comment, disk, _, _, offset = rest
        at += ENTRY.size
        if magic != ENTRY_MAGIC or disk or at + name + extra + comment > len(raw):
            raise Malformed("its directory is damaged")
        sizes = _sizes(raw[at + name : at + name + extra], full, packed, offset)
        entries.append(
            _Entry(raw[at : at + name], flags, method, crc, sizes[1], sizes[0], sizes[2])
        )
        at += name + extra + comment
    if at != len(raw):
        raise Malformed("its directory is damaged: it is longer than it says")
    return entries


def _sizes(extra: bytes, full: int, packed: int, offset: int) -> tuple[int, int, int]:
    """Size, packed size and offset, each from the extra field where it does not fit 32 bits."""
    wide, at = b"", 0
    while at + 4 <= len(extra):
        tag, length = unpack_from("<2H", extra, at)
        if tag == EXTRA64:
            wide = extra[at + 4 : at + 4 + length]
            break
        at += 4 + length
    numbers = []
    for number in (full, packed, offset):
        if number != FULL:
            numbers.append(number)
            continue
        if len(wide) < 8:
            raise Malformed("its directory is damaged: a size of 64 bits is missing")
        numbers.append(int.from_bytes(wide[:8], "little"))
        wide = wide[8:]
    return numbers[0], numbers[1], numbers[2]


def _located(file: IO[bytes], entry: _Entry, end: int) -> Record:
    """Where its bytes lie, if the record's own header says the same as the directory."""
    shown = entry.name[:80]
    if entry.flags & ~(LATER | UTF8 | LEVELS):
        raise Malformed(f"{shown} is encrypted or a patch, which torch.save never writes")
    if entry.method:
        raise Malformed("it has compressed records, which torch.save never writes")
    if entry.packed != entry.size:
        raise Malformed(f"{shown} has two sizes")
    file.seek(entry.offset)
    raw = file.read(HEADER.size)
    if len(raw) < HEADER.size or not raw.startswith(HEADER_MAGIC):
        raise Malformed(f"the header of {shown} is damaged")
    _, _, flags, method, _, _, crc, _, size, name, extra = HEADER.unpack(raw)
    if file.read(name) != entry.raw:
        raise Malformed(f"{shown} has another name in its own header than in the directory")
    told = flags & LATER or (crc == entry.crc and size in (entry.size, FULL))
    if flags & ~(LATER | UTF8 | LEVELS) or method or not told:
        raise Malformed(f"the header of {shown} contradicts the directory")
    start = entry.offset + HEADER.size + name + extra
    if start + entry.size > end:
        raise Malformed(f"{shown} ends past the end of the file")
    return Record(entry.name, start, entry.size, entry.crc)
