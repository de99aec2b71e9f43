"""torch.save's format since 1.6: a zip archive of uncompressed records, one pickle and one record for each storage."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass
from functools import partial
from typing import IO

from auditor.checkpoints import pickles
from auditor.checkpoints.container import Container
from auditor.checkpoints.contents import BYTES, Malformed, NotACheckpoint, Storage

PICKLE_LIMIT = 2**28
"""Bytes of the pickle at most: those of real checkpoints with a hundred thousand tensors are some 30 MB."""

LOCAL_HEADER, LOCAL_MAGIC = struct.Struct("<4s22xHH"), b"PK\x03\x04"
PIECE = 2**22


@dataclass(frozen=True)
class Record:
    """One file of the archive: where its bytes lie, and what their CRC-32 should be."""

    name: str
    start: int
    size: int
    crc: int


def open_zip(file: IO[bytes], size: int) -> Container:
    """Read the pickle, check every record. Raises :class:`Malformed`, or :class:`NotACheckpoint` for other zip archives."""
    records = _records(file, size)
    root = next((name.removesuffix("data.pkl") for name in records if name.endswith("/data.pkl") and name.count("/") == 1), None)
    if root is None:
        raise NotACheckpoint("it is a zip archive without data.pkl: torch.save did not write it")
    if f"{root}constants.pkl" in records:
        raise NotACheckpoint("it is a TorchScript archive, which is a program and not a checkpoint")
    bad = _wrong_checksums(file, records)
    pickled = records[root + "data.pkl"]
    if pickled.size > PICKLE_LIMIT:
        raise Malformed(f"its pickle has {pickled.size} bytes: more than any checkpoint needs")
    if pickled.name in bad:
        raise Malformed("the checksum of data.pkl is wrong: which tensors there are cannot be trusted")
    tree, foreign = pickles.load(io.BytesIO(_bytes(file, pickled)), pickled.size)
    order = records.get(f"{root}byteorder")
    big = order is not None and _bytes(file, order) == b"big"
    data = {name.removeprefix(f"{root}data/"): record for name, record in records.items() if name.startswith(f"{root}data/")}
    container = Container("torch zip", tree, partial(_read, file, data), foreign, big_endian=big)
    container.damage += [
        f"the checksum of {name.removeprefix(root)} is wrong: its bytes are not those that were saved" for name in bad
    ]
    return container


def _records(file: IO[bytes], size: int) -> dict[str, Record]:
    try:
        entries = zipfile.ZipFile(file).infolist()
    except zipfile.BadZipFile:
        raise Malformed(
            "its directory, which stands at the end, is missing or damaged: it was cut off or not written to its end"
        ) from None
    except Exception as error:  # zipfile trusts the numbers in a directory
        raise Malformed(f"its directory is damaged ({type(error).__name__})") from None
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise Malformed("it has compressed records, which torch.save never writes")
    if sum(entry.file_size for entry in entries) > size:
        raise Malformed("its records overlap: together they are longer than the file")
    return {entry.filename: _located(file, entry, size) for entry in entries}


def _located(file: IO[bytes], entry: zipfile.ZipInfo, size: int) -> Record:
    file.seek(entry.header_offset)
    header = file.read(LOCAL_HEADER.size)
    if len(header) < LOCAL_HEADER.size or not header.startswith(LOCAL_MAGIC):
        raise Malformed(f"the header of {entry.filename[:80]!r} is damaged")
    _, name, extra = LOCAL_HEADER.unpack(header)
    start = entry.header_offset + LOCAL_HEADER.size + name + extra
    if start + entry.file_size > size:
        raise Malformed(f"{entry.filename[:80]!r} ends behind the end of the file")
    return Record(entry.filename, start, entry.file_size, entry.CRC)


def _wrong_checksums(file: IO[bytes], records: dict[str, Record]) -> list[str]:
    """Names of damaged records; none where checksums were switched off (torch.serialization.set_crc32_options)."""
    written = [record for record in records.values() if record.size]
    if all(record.crc == 0 for record in written):
        return []
    return [record.name for record in written if _crc(file, record) != record.crc]


def _crc(file: IO[bytes], record: Record) -> int:
    file.seek(record.start)
    crc, left = 0, record.size
    while left:
        piece = file.read(min(PIECE, left))
        if not piece:
            return -1
        crc, left = zlib.crc32(piece, crc), left - len(piece)
    return crc


def _bytes(file: IO[bytes], record: Record) -> bytes:
    file.seek(record.start)
    return file.read(record.size)


def _read(file: IO[bytes], data: dict[str, Record], storage: Storage, first: int, size: int) -> bytes:
    record = data.get(storage.key)
    if record is None:
        raise Malformed(f"its data (record data/{storage.key[:40]}) is missing")
    width = BYTES.get(storage.dtype)
    if width is not None and record.size != storage.numel * width:
        raise Malformed(f"its record has {record.size} bytes, and {storage.numel} x {storage.dtype} have {storage.numel * width}")
    file.seek(record.start + first)
    return file.read(min(size, record.size - first))
