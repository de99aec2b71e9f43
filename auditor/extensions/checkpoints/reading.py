"""One checkpoint as torch or safetensors loads it: done in a child that may die of it."""

import json
import pickle
import pickletools
import re
import stat
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from auditor.evidence.scans import Format, Scan
from auditor.extensions.checkpoints.keys import printable

HEADER_LIMIT = 100_000_000
"""Bytes of the header of a safetensors file at most, as the format has it."""

WORDS = 200
"""Characters of what torch says that are passed on."""


class NotACheckpoint(Exception):
    """The file is of no format that is read here; the message is one sentence for the user."""


def read(path: Path) -> Scan:
    """What is in one file. Raises :class:`NotACheckpoint`; damage and refusals are results."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise NotACheckpoint("it is not a file")
        with path.open("rb") as file:
            kind = _format(file.read(16), about.st_size)
        scan = Scan(str(path), kind, about.st_size, about.st_mtime)
        return _scan_file(path, scan)
    except FileNotFoundError:
        raise NotACheckpoint("it does not exist") from None
    except OSError as error:
        said = error.strerror or type(error).__name__
        raise NotACheckpoint(f"it cannot be read: {said}") from None


def _format(head: bytes, size: int) -> Format:
    if not size:
        raise NotACheckpoint("it is empty")
    if head.startswith(b"PK\x03\x04"):
        return "torch zip"
    length = int.from_bytes(head[:8], "little")
    # before pickles: the length of one header in 32 begins as they do
    if 2 <= length <= HEADER_LIMIT and head[8:].lstrip(b" \t\r\n").startswith(b"{"):
        return "safetensors"
    if head.startswith(b"\x80"):
        return "torch legacy"
    if head[:4].strip(b"\0") == b"" and size > 16:
        raise NotACheckpoint(
            "it begins with zeros: its beginning was never written, or it is not a checkpoint"
        )
    raise NotACheckpoint(
        "it is neither a zip archive or pickle of torch.save nor a safetensors file"
    )


def _scan_file(path: Path, scan: Scan) -> Scan:
    if path.suffix == ".safetensors" and scan.format != "safetensors":
        # others go by this ending, whatever is in the file
        return replace(scan, damage=("its name says safetensors, and its content does not",))
    records: Counter[int] | None = None
    if scan.format == "torch zip":
        try:
            with zipfile.ZipFile(path) as archive:
                damage = tuple(_wrong_in_archive(archive, scan.size))
                records = Counter(
                    each.file_size for each in archive.infolist() if "/data/" in each.filename
                )
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError) as error:
            damage = (f"its archive is damaged: {_words(error)}",)
        if damage:
            return replace(scan, damage=damage)
    try:
        return _walked(path, scan, records)
    except (MemoryError, NotACheckpoint):
        raise
    except Exception as error:  # whatever a broken file makes torch say
        return replace(scan, **_failed(error))


def _walked(path: Path, scan: Scan, records: Counter[int] | None) -> Scan:
    from auditor.extensions.checkpoints import standins, walk

    found = walk.Walk()
    if scan.format == "safetensors":
        _take_safetensors(path, found)
    else:
        found.take(_loaded(path, scan.format))
    storages = Counter(found.storages.values())
    damage: tuple[str, ...] = ()
    if records is not None and not storages <= records:
        damage = ("a storage is not as long as its record in the archive",)
    return replace(
        scan,
        tensors=tuple(found.tensors),
        damage=damage,
        limits=found.limits,
        aside=found.aside,
        foreign=tuple(sorted(standins.used)),
        optimizers=tuple(
            walk.optimizer_facts(place, state, found.tensors)
            for place, state in found.optimizers.items()
        ),
        schedulers=tuple(
            walk.scheduler_facts(place, state) for place, state in found.schedulers.items()
        ),
        scaler=bool(found.scalers),
        rng=found.rng,
        progress=found.progress,
    )


def _loaded(path: Path, kind: Format) -> Any:
    import torch

    load = partial(
        torch.load, path, weights_only=True, map_location="cpu", mmap=kind == "torch zip"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return load()
        except pickle.UnpicklingError as error:
            if "to load DTensors" not in str(error):
                raise
            import torch.distributed.tensor  # with it torch knows their names

            return load()


# -- what torch does not look at -------------------------------------------------------------------


def _wrong_in_archive(archive: zipfile.ZipFile, size: int) -> Iterator[str]:
    """Raises for a record whose own header differs."""
    records = archive.infolist()
    names = [record.filename for record in records]
    if len({name.casefold() for name in names}) < len(names):
        yield "it has a name twice, and readers differ in the entry that they take"
    if len({name.partition("/")[0] for name in names}) > 1:
        yield "it has more than one folder"
    if sum(name.endswith("/data.pkl") for name in names) != 1:
        yield "it has no data.pkl, or more than one"
    if any(stat.S_ISLNK(record.external_attr >> 16) for record in records):
        yield "it holds a link"
    if any(name.endswith("/constants.pkl") for name in names):
        return  # a program, which torch refuses
    if any(record.compress_type or record.flag_bits & 1 for record in records):
        yield "it has compressed or encrypted records, which torch.save never writes"
    elif sum(record.file_size for record in records) > size:
        yield "its records are longer than the file"
    elif any(record.CRC for record in records):
        bad = archive.testzip()
        if bad is not None:
            yield f"the checksum or header of {printable(bad[:80])} is wrong: it has changed"
    else:  # switched off by torch.serialization.set_crc32_options
        for record in records:
            archive.open(record).close()


def _take_safetensors(path: Path, found: Any) -> None:
    """Tensor by tensor. The package takes one of two entries of a name."""
    try:
        from safetensors import safe_open
    except ImportError:
        raise NotACheckpoint("reading it needs a package: pip install safetensors") from None
    with safe_open(path, framework="pt") as file:
        with path.open("rb") as raw:
            length = int.from_bytes(raw.read(8), "little")
            json.loads(raw.read(length), object_pairs_hook=_once)
        for name in file.keys():  # noqa: SIM118 - it is no dict
            found.tensor((name,), file.get_tensor(name), loaded=False)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("its header has a name twice")
    return made


# -- what torch says -------------------------------------------------------------------------------

UNSUPPORTED = re.compile(r"(?:Unsupported global: |unsupported )GLOBAL (\S+)")
OPCODE = re.compile(r"Unsupported operand (\d+)")


def _failed(error: Exception) -> dict[str, Any]:
    """The fields of a scan: refused by torch, or damaged."""
    said = str(error)
    if not isinstance(error, pickle.UnpicklingError) and "weights_only" not in said:
        return {"damage": (f"it cannot be loaded: {_words(error)}",)}
    name, opcode = UNSUPPORTED.search(said), OPCODE.search(said)
    if name is not None:
        why = f"its pickle names {name[1]}, which may run code"
    elif opcode is not None:
        known = next(
            (each for each in pickletools.opcodes if each.code == chr(int(opcode[1]))), None
        )
        what = f"{known.name} of protocol {known.proto}" if known else f"{opcode[1]}, which is none"
        why = f"its pickle has the opcode {what}"
    else:
        why = _words(error)
    return {"refused": printable(why)}


def _words(error: Exception) -> str:
    """What an error says, in one short line."""
    said = str(error).partition("WeightsUnpickler error:")
    lines = [line.strip() for line in (said[2] or said[0]).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    text = text.removeprefix("Weights only load failed. ")
    return printable(text.partition(". In PyTorch 2.6")[0][:WORDS])
