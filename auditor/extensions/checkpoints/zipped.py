"""torch.save's format since 1.6: a zip archive of uncompressed records, one pickle and one record
for each storage.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from functools import partial
from typing import IO

from auditor.extensions.checkpoints import pickles
from auditor.extensions.checkpoints.container import Container
from auditor.extensions.checkpoints.contents import BYTES, Malformed, NotACheckpoint, Storage
from auditor.extensions.checkpoints.directory import Record, records_of

PIECE = 2**22

OWN = {
    "version": rb"([1-9]|10)\s*",
    ".data/version": rb"([1-9]|10)\s*",
    ".format_version": rb"\d{1,4}\s*",
    "byteorder": rb"little|big",
    ".storage_alignment": rb"[1-9]\d{0,8}",
    ".data/serialization_id": rb"[!-~]{1,64}",
}
"""Records of torch.save beside the pickle and the storages, which are ``data/0``, ``data/1`` ...:
what each may hold. Of versions torch reads the first ten.
"""

TORCHSCRIPT = ("constants.pkl", "code/")
"""Records (and folders) of an archive that holds a program."""

SMALL = 64
"""Bytes of the records that hold a word or a number, at most."""


def open_zip(file: IO[bytes], size: int) -> Container:
    """Read the pickle, check every record. Raises :class:`Malformed`, or :class:`NotACheckpoint`
    for other zip archives.
    """
    listed = records_of(file, size, _expect_data)
    root, records = _rooted(listed)
    bad = _wrong_checksums(file, records)
    pickled = records["data.pkl"]
    if pickled.size > pickles.PICKLE_LIMIT:
        raise Malformed(f"its pickle has {pickled.size} bytes: more than any checkpoint needs")
    loaded = pickles.load(file, pickled.start, pickled.size, "zip")
    wrong = (
        "the checksum of data.pkl is wrong: which tensors there are cannot be trusted"
        if pickled in bad
        else "there are bytes after its pickle, which torch.save never writes"
    )
    if pickled in bad or loaded.end != pickled.start + pickled.size:
        problem = Malformed(wrong)
        problem.foreign = loaded.foreign
        raise problem
    data = {
        name.removeprefix("data/"): record
        for name, record in records.items()
        if name.startswith("data/")
    }
    foreign = tuple(
        sorted({*loaded.foreign, *_hidden(file, [each for each in listed if each is not pickled])})
    )
    big = _word(file, records.get("byteorder")) == b"big"
    container = Container(
        "torch zip",
        loaded.tree,
        partial(_read, file, data),
        foreign,
        big_endian=big,
        made=loaded.made,
        beyond=loaded.beyond,
    )
    container.damage += _contradictions(file, listed, records)
    container.damage += [
        f"the checksum of {record.name.removeprefix(root)} is wrong: its bytes are not those that "
        "were saved"
        for record in bad
    ]
    container.unread = partial(_storages, loaded.storages, data)
    return container


def _root(names: Iterable[str]) -> str:
    return next(iter(names), "").partition("/")[0] + "/"


def _expect_data(names: list[str]) -> None:
    """Raises :class:`NotACheckpoint` for the names of an archive that holds a program."""
    root = _root(names)
    if any(name.startswith(root) and name[len(root) :].startswith(TORCHSCRIPT) for name in names):
        raise NotACheckpoint("it is a TorchScript archive, which is a program and not a checkpoint")


def _rooted(listed: list[Record]) -> tuple[str, dict[str, Record]]:
    """The archive's one folder, as torch finds it (that of the first record), and what is in it by
    the name there.
    """
    root = _root(each.name for each in listed)
    records = {
        each.name.removeprefix(root): each
        for each in reversed(listed)
        if each.name.startswith(root)
    }
    if "data.pkl" not in records:
        raise NotACheckpoint("it is a zip archive without data.pkl: torch.save did not write it")
    return root, records


def _contradictions(file: IO[bytes], listed: list[Record], records: dict[str, Record]) -> list[str]:
    """Where readers of zip archives would see different things, and what torch itself refuses."""
    said, seen = [], set()
    for record in listed:
        folded = record.name.lower()  # torch's reader looks names up without regard to case
        if folded in seen:
            said.append(
                f"it has two records of the name {record.name[:80]}: which one is read depends on "
                "the reader"
            )
        seen.add(folded)
    inside = {record.name: name for name, record in records.items()}
    strange = [
        each.name
        for each in listed
        if not _expected(inside.get(each.name, each.name)) and not each.name.endswith("/")
    ]
    if strange:
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        said.append(f"it has a record that torch.save never writes: {strange[0][:80]}{more}")
    if not {"version", ".data/version"} & {*records}:
        said.append("its record of the format's version is missing: torch does not load it")
    said += [
        f"its record {name} is damaged: torch does not load it"
        for name, form in OWN.items()
        if name in records and not re.fullmatch(form, _word(file, records[name]))
    ]
    return said[:10]


def _expected(name: str) -> bool:
    return name in OWN or name == "data.pkl" or (name.startswith("data/") and name.count("/") == 1)


def _word(file: IO[bytes], record: Record | None) -> bytes:
    if record is None or record.size > SMALL:
        return b""
    file.seek(record.start)
    return file.read(record.size)


def _hidden(file: IO[bytes], records: list[Record]) -> set[str]:
    """Names that pickles in the place of other records ask for: torch does not read them here,
    other loaders may.
    """
    found: set[str] = set()
    for record in records:
        file.seek(record.start)
        head = file.read(min(2, record.size))
        if head[:1] == b"\x80" and head[1:] <= b"\x05":
            found |= {*pickles.names_in(file, record.start, record.size)}
    return found


def _storages(storages: tuple[Storage, ...], data: dict[str, Record]) -> list[str]:
    """What is wrong with records that the pickle refers to; what tensors of them say is said when
    they are looked at.
    """
    said = []
    for storage in storages:
        try:
            _checked(data, storage)
        except Malformed as problem:
            said.append(f"storage {storage.key[:40]}: {problem}")
    more = [f"{len(said) - 5} more storages are as wrong"] if len(said) > 5 else []
    return [*said[:5], *more]


def _checked(data: dict[str, Record], storage: Storage) -> Record:
    record = data.get(storage.key)
    if record is None:
        raise Malformed(f"its data (record data/{storage.key[:40]}) is missing")
    width = BYTES.get(storage.dtype)
    if width is not None and record.size != storage.numel * width:
        raise Malformed(
            f"its record has {record.size} bytes, and {storage.numel} x {storage.dtype} have "
            f"{storage.numel * width}"
        )
    return record


def _wrong_checksums(file: IO[bytes], records: dict[str, Record]) -> list[Record]:
    """Damaged records; none where checksums were switched off
    (torch.serialization.set_crc32_options).
    """
    written = [record for record in records.values() if record.size]
    if all(record.crc == 0 for record in written):
        return []
    return [record for record in written if _crc(file, record) != record.crc]


def _crc(file: IO[bytes], record: Record) -> int:
    file.seek(record.start)
    crc, left = 0, record.size
    while left:
        piece = file.read(min(PIECE, left))
        if not piece:
            return -1
        crc, left = zlib.crc32(piece, crc), left - len(piece)
    return crc


def _read(
    file: IO[bytes], data: dict[str, Record], storage: Storage, first: int, size: int
) -> bytes:
    record = _checked(data, storage)
    file.seek(record.start + first)
    return file.read(max(0, min(size, record.size - first)))
