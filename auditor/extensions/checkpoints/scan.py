"""One checkpoint from its path to what it holds, tensor by tensor, in bounded memory."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from auditor.evidence.scans import Format, OptimizerFacts, Scan, SchedulerFacts, Tally, TensorFacts
from auditor.extensions.checkpoints import legacy, safetensors, structure, values, zipped
from auditor.extensions.checkpoints.container import Container
from auditor.extensions.checkpoints.contents import (
    BYTES,
    Malformed,
    NotACheckpoint,
    Stored,
    printable,
)
from auditor.isolation import ReaderDied, isolated, seconds_for
from auditor.typed_reading import decoder

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".tar")
"""Files of a folder that are taken for checkpoints."""

WORDS = frozenset(
    (".json", ".jsonl", ".txt", ".md", ".yaml", ".yml", ".toml", ".py", ".csv", ".log", ".html")
)
"""Endings of files beside them that are words, and hold no weights."""

INDEX = ".index.json"
"""End of the name of the file that lists the shards of a checkpoint (Hugging Face)."""

SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\..+)")
"""Name of one of several shards: its number, and how many there are (Hugging Face)."""

INDEX_LIMIT = 2**26
"""Bytes of an index at most: one of a hundred thousand tensors has 10 MB."""

READS_OF_THE_FILE = 16
"""Bytes of all views together that are looked at, in sizes of the file: many views may share a
storage.
"""

PASSED_ON = (Scan, TensorFacts, Tally, OptimizerFacts, SchedulerFacts, NotACheckpoint)
"""Classes that a scan is made of, which come from one process to another."""

ZIP_MAGIC, PICKLE_MAGIC = b"PK\x03\x04", b"\x80"


def scan(path: Path) -> Scan:
    """Read one file. Raises :class:`NotACheckpoint` where it is of no known format; damage is part
    of the result.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise NotACheckpoint("it is no file")
        with path.open("rb") as file:
            size = path.stat().st_size
            empty = Scan(str(path), _format(file, size), size, path.stat().st_mtime)
            try:
                found = _described(empty, _opened(file, empty))
            except Malformed as problem:
                found = replace(empty, damage=(str(problem),), foreign=problem.foreign)
    except FileNotFoundError:
        raise NotACheckpoint("it does not exist") from None
    except OSError as error:
        raise NotACheckpoint(
            f"it cannot be read: {error.strerror or type(error).__name__}"
        ) from None
    damage = (
        ("its name says safetensors, and its content does not",) if _misnamed(found) else ()
    ) + found.damage
    return replace(
        found, damage=tuple(map(printable, damage)), limits=tuple(map(printable, found.limits))
    )


def _misnamed(found: Scan) -> bool:
    """torch.load and others go by this ending, whatever is in the file."""
    return found.path.endswith(".safetensors") and found.format != "safetensors"


def _format(file: IO[bytes], size: int) -> Format:
    head = file.read(16)
    if not size:
        raise NotACheckpoint("it is empty")
    if head.startswith(ZIP_MAGIC):
        return "torch zip"
    # before pickles: the length of one header in 32 begins as they do
    if safetensors.looks_like(head):
        return "safetensors"
    if head.startswith(PICKLE_MAGIC):
        return "torch legacy"
    if head[:4].strip(b"\0") == b"" and size > 16:
        raise NotACheckpoint(
            "it begins with zeros: its beginning was never written, or it is no checkpoint"
        )
    raise NotACheckpoint(
        "it is neither a zip archive or pickle of torch.save nor a safetensors file"
    )


def _opened(file: IO[bytes], scan: Scan) -> Container:
    open_one = {
        "torch zip": zipped.open_zip,
        "torch legacy": legacy.open_legacy,
        "safetensors": safetensors.open_safetensors,
    }
    return open_one[scan.format](file, scan.size)


def _described(empty: Scan, container: Container) -> Scan:
    found = structure.structure(container.tree)
    container.limits += found.left
    tensors = _tallied(container, found, empty.size)
    container.limits += _limits([*tensors, *found.odd()], found)
    tensors += [each for each in found.odd() if each.role != "other"]
    _check(container, found)
    if not container.damage:
        container.damage += container.unread()
    return replace(
        empty,
        tensors=tuple(tensors),
        damage=tuple(container.damage),
        limits=tuple(container.limits),
        foreign=container.foreign,
        optimizers=tuple(
            structure.optimizer_facts(path, state, tensors)
            for path, state in found.optimizers.items()
        ),
        schedulers=tuple(
            structure.scheduler_facts(path, state) for path, state in found.schedulers.items()
        ),
        scaler=bool(found.scalers),
        rng=found.rng,
        progress=found.progress,
        beyond=container.beyond,
    )


def _tallied(container: Container, found: structure.Structure, size: int) -> list[TensorFacts]:
    """Each tensor with its tally; views of the same bytes are looked at once."""
    known: dict[Stored, Tally | None] = {}
    described = []
    bytes_left = READS_OF_THE_FILE * size
    for path, stored in found.tensors:
        if stored not in known:
            bytes_left -= min(stored.span_bytes, size)
            known[stored] = _tally(container, path, stored) if bytes_left > 0 else None
        tally = known[stored]
        role = found.role(path, tally, len(stored.shape))
        described.append(
            TensorFacts(structure.named(path), stored.dtype, stored.shape, role, tally, path)
        )
    if bytes_left <= 0:
        container.limits.append(
            "its tensors share storages so often that not all of them were looked at"
        )
    return described


def _limits(tensors: list[TensorFacts], found: structure.Structure) -> Iterator[str]:
    """Sentences about what was not looked at, or of which nothing says what it is."""
    kinds = {
        "holds NaN or infinities, and neither its key nor its place says whether it is a weight": [
            each.name for each in tensors if found.unclear(each)
        ],
        **{
            f"is of {dtype}, whose numbers are not looked at": [
                each.name for each in tensors if each.dtype == dtype
            ]
            for dtype in dict.fromkeys(each.dtype for each in tensors)
            if dtype not in {*BYTES, structure.PLAIN}
        },
        "is a storage of bytes: which numbers they are, nothing says": found.untyped,
        "is a tensor of the device meta, which has no numbers": found.without_numbers,
    }
    for words, names in kinds.items():
        if names:
            yield f"{names[0]} {words}" + f" (and {len(names) - 1} more)" * (len(names) > 1)


def _check(container: Container, found: structure.Structure) -> None:
    """Whether the indices of sparse and nested tensors point into them, of those also that are made
    and thrown away.
    """
    names = {id(mark): structure.named(path) for path, mark in found.composites.items()}

    def look(stored: Stored) -> NDArray[Any]:
        return values.integers(
            stored, _reader(container, stored), big_endian=_swapped(container, stored)
        )

    for mark in container.made:
        if mark.check is None:
            continue
        try:
            mark.check(look)
        except Malformed as problem:
            container.damage.append(f"{names.get(id(mark), 'a tensor of no name')}: {problem}")
        except (ValueError, OverflowError, MemoryError) as error:
            container.damage.append(
                f"{names.get(id(mark), 'a tensor of no name')}: its indices are damaged "
                f"({type(error).__name__})"
            )


def _reader(container: Container, stored: Stored) -> values.Read:
    """Reads its storage, which is in the file or in the pickle itself."""
    raw = stored.storage.raw
    if raw is not None:
        return lambda first, size: raw[first : first + size]
    return partial(container.read, stored.storage)


def _swapped(container: Container, stored: Stored) -> bool:
    return container.big_endian and stored.storage.raw is None


def _tally(container: Container, path: structure.Path, stored: Stored) -> Tally | None:
    try:
        return values.tally(
            stored, _reader(container, stored), big_endian=_swapped(container, stored)
        )
    except Malformed as problem:
        container.damage.append(f"{structure.named(path)}: {problem}")
    except (ValueError, OverflowError, MemoryError) as error:
        # numbers in the file that no array can have
        container.damage.append(
            f"{structure.named(path)}: its description is damaged ({type(error).__name__})"
        )
    return None


# -- folders ---------------------------------------------------------------------------------------


def checkpoints_in(path: Path) -> tuple[Path, ...]:
    """The checkpoints that a path stands for: itself, or those of a folder (a sharded one is its
    index).
    """
    if not path.is_dir():
        return (path,)
    files = sorted(each for each in path.iterdir() if each.is_file())
    indexes = [each for each in files if each.name.endswith(INDEX)]
    shards = {each for index in indexes for each in _beside(index)}
    return (
        *indexes,
        *(each for each in files if each.suffix.lower() in SUFFIXES and each not in shards),
    )


def passed_over(path: Path) -> tuple[str, ...]:
    """Names of what in a folder is not read, and is not known to be something else."""
    if not path.is_dir():
        return ()
    read = {*checkpoints_in(path)}
    read |= {shard for index in read if index.name.endswith(INDEX) for shard in _beside(index)}
    return tuple(
        each.name + "/" * each.is_dir()
        for each in sorted(path.iterdir())
        if each not in read and not each.name.startswith(".") and each.suffix.lower() not in WORDS
    )


def scan_any(path: Path) -> Scan:
    """Read a file, or all shards that an index lists. Raises :class:`NotACheckpoint`."""
    if path.name.endswith(INDEX):
        return _sharded(path)
    found = scan(path)
    return replace(found, damage=(*found.damage, *_missing_shards(path)))


def _missing_shards(path: Path) -> list[str]:
    """Whether one of the shards that a file's name counts is not beside it."""
    own = SHARD.fullmatch(path.name)
    if own is None:
        return []
    beside = [SHARD.fullmatch(each.name) for each in path.parent.iterdir()]
    there = {int(each[2]) for each in beside if each and each.group(1, 3, 4) == own.group(1, 3, 4)}
    first = 0 if 0 in there else 1
    missing = sorted({*range(first, first + int(own[3]))} - there)
    if not missing:
        return []
    name = f"{own[1]}-{missing[0]:05}-of-{own[3]}{own[4]}"
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return [printable(f"it is one of {int(own[3])} shards, of which {name}{more} is not beside it")]


def scan_apart(path: Path) -> Scan:
    """As :func:`scan_any`, in a process of its own: a file that its reader dies of is damaged, and
    no other is.
    """
    try:
        return isolated(
            lambda: scan_any(path),
            PASSED_ON,
            seconds=seconds_for(sum(map(_size, (path, *_beside(path))))),
        )
    except ReaderDied as problem:
        return Scan(str(path), _format_by_name(path), _size(path), damage=(str(problem),))


def _format_by_name(path: Path) -> Format:
    if path.name.endswith(INDEX):
        return "sharded"
    return "safetensors" if path.suffix == ".safetensors" else "torch zip"


def _beside(index: Path) -> list[Path]:
    """The files that an index lists, if they lie beside it."""
    if not index.name.endswith(INDEX):
        return []
    return [index.parent / name for name in sorted({*_shards(index).values()}) if _plain(name)]


def _plain(name: str) -> bool:
    """True for the name of a file beside the index: a path would lead elsewhere."""
    return name not in ("", ".", "..") and not {"/", "\\", "\0"} & {*name}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _sharded(index: Path) -> Scan:
    listed = _shards(index)
    if not listed:
        raise NotACheckpoint("it is no index of shards: it has no weight_map")
    scans, damage = [], []
    for name in sorted({*listed.values()}):
        if not _plain(name):
            damage.append(f"shard {name[:80]!r} does not lie beside its index")
            continue
        try:
            found = scan(index.parent / name)
        except NotACheckpoint as problem:
            damage.append(f"shard {name[:80]}: {problem}")
            continue
        scans.append(found)
        damage += [f"shard {name[:80]}: {sentence}" for sentence in found.damage]
        held = {".".join(map(str, tensor.place)) for tensor in found.tensors}
        missing = sorted(each for each, file in listed.items() if file == name and each not in held)
        if missing and not found.damage:
            damage.append(
                f"{len(missing)} tensors of its index are not in shard {name[:80]}, "
                f"{missing[0][:80]} first"
            )
    return Scan(
        str(index),
        "sharded",
        sum(each.size for each in scans),
        max((each.modified for each in scans), default=0.0),
        tuple(tensor for each in scans for tensor in each.tensors),
        tuple(map(printable, damage)),
        tuple(f"shard {Path(each.path).name}: {limit}" for each in scans for limit in each.limits),
        foreign=tuple(sorted({name for each in scans for name in each.foreign})),
        beyond=next((each.beyond for each in scans if each.beyond), ""),
    )


def _shards(index: Path) -> dict[str, str]:
    """File of each tensor, by name."""
    try:
        with index.open("rb") as file:
            listed: dict[str, str] = decoder(_Index).decode(file.read(INDEX_LIMIT)).weight_map
    except (OSError, ValueError, RecursionError):
        return {}
    return listed


class _Index(msgspec.Struct):
    """What is read of an index; the rest is passed over."""

    weight_map: dict[str, str] = {}
