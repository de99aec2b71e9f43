"""Files and folders of checkpoints: each is read in a child, and which shards belong together."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from auditor.errors import AuditProblem
from auditor.evidence.scans import (
    ElementCounts,
    Format,
    OptimizerFacts,
    Scan,
    SchedulerFacts,
    TensorFacts,
)
from auditor.extensions.checkpoints.keys import printable
from auditor.extensions.checkpoints.reading import NotACheckpoint, read
from auditor.isolation import MEMORY, ReaderDied, isolated
from auditor.typed_reading import decoder

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

CPU_SECONDS, WALL_SECONDS = 20.0, 60.0
"""Time that a file may take: of a processor, and in all."""

BYTES_A_SECOND = 200_000
"""Bytes for which a reader may take a second more: small tensors take half a millisecond."""

PASSED_ON = (Scan, TensorFacts, ElementCounts, OptimizerFacts, SchedulerFacts, NotACheckpoint)
"""Classes that come from one process to another."""


def checkpoints_in(path: Path) -> tuple[Path, ...]:
    """The checkpoints of a path: itself, or those of a folder (a sharded one is its index)."""
    if not path.is_dir():
        return (path,)
    files = sorted(each for each in path.iterdir() if each.is_file())
    indexes = [each for each in files if each.name.endswith(INDEX)]
    shards = {shard for index in indexes for shard in (*_shards_of(index), *_lying(index))}
    return (
        *indexes,
        *(each for each in files if each.suffix.lower() in SUFFIXES and each not in shards),
    )


def passed_over(path: Path) -> tuple[str, ...]:
    """Names of what in a folder is not read, and is not known to be something else."""
    if not path.is_dir():
        return ()
    read_ones = {*checkpoints_in(path)}
    for index in [each for each in read_ones if each.name.endswith(INDEX)]:
        read_ones |= {*_shards_of(index), *_lying(index)}
    return tuple(
        each.name + "/" * each.is_dir()
        for each in sorted(path.iterdir())
        if each not in read_ones
        and not each.name.startswith(".")
        and each.suffix.lower() not in WORDS
    )


def scans_of(paths: Sequence[Path]) -> list[Scan | NotACheckpoint]:
    """What is in each file. torch is imported once, in a child that forks others; never here."""
    if not paths:
        return []
    sizes = [_size(each) for path in paths for each in (path, *_shards_of(path))]
    try:
        return isolated(
            lambda: _all(paths),
            PASSED_ON,
            seconds=WALL_SECONDS * (1 + len(sizes)) + sum(sizes) / BYTES_A_SECOND,
            memory=None,
        )
    except ReaderDied as problem:
        raise AuditProblem(f"no checkpoint can be read: {problem}") from None


def _all(paths: Sequence[Path]) -> list[Scan | NotACheckpoint]:
    from auditor.extensions.checkpoints import walk

    walk.prepare()
    return [_one(path) for path in paths]


def _one(path: Path) -> Scan | NotACheckpoint:
    try:
        if path.name.endswith(INDEX):
            return _sharded(path)
        found = _apart(path)
        return replace(found, damage=(*found.damage, *_missing_shards(path)))
    except NotACheckpoint as problem:
        return problem


def _apart(path: Path) -> Scan:
    """As :func:`read`, in a process of its own: a file whose reader dies is damaged."""
    size = _size(path)
    try:
        return isolated(
            lambda: read(path),
            PASSED_ON,
            seconds=WALL_SECONDS + size / BYTES_A_SECOND,
            cpu=CPU_SECONDS + size / BYTES_A_SECOND,
            memory=MEMORY + 3 * size,
        )
    except ReaderDied as problem:
        kind: Format = "safetensors" if path.suffix == ".safetensors" else "torch zip"
        return Scan(str(path), kind, size, damage=(str(problem),))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError):
        return 0


# -- shards ----------------------------------------------------------------------------------------


class _Index(msgspec.Struct):
    """What is read of an index; the rest is passed over."""

    weight_map: dict[str, str] = {}


def _listed(index: Path) -> dict[str, str]:
    """File of each tensor, by name."""
    try:
        with index.open("rb") as file:
            listed: dict[str, str] = decoder(_Index).decode(file.read(INDEX_LIMIT)).weight_map
    except (OSError, ValueError, RecursionError):
        return {}
    return listed


def _is_plain(name: str) -> bool:
    """True for the name of a file beside the index: a path would lead elsewhere."""
    return name not in ("", ".", "..") and not {"/", "\\", "\0"} & {*name}


def _shards_of(index: Path) -> list[Path]:
    if not index.name.endswith(INDEX):
        return []
    return [index.parent / name for name in sorted({*_listed(index).values()}) if _is_plain(name)]


def _lying(index: Path) -> list[Path]:
    """Shards beside an index that have the same name as one that it names, but for the number."""
    own = [SHARD.fullmatch(path.name) for path in _shards_of(index)]
    families = {shard.group(1, 4) for shard in own if shard is not None}
    return [
        path
        for path in sorted(index.parent.iterdir())
        if (shard := SHARD.fullmatch(path.name)) is not None and shard.group(1, 4) in families
    ]


def _sharded(index: Path) -> Scan:
    listed = _listed(index)
    if not listed:
        raise NotACheckpoint("it is no index of shards: it has no weight_map")
    elsewhere = sorted(name for name in {*listed.values()} if not _is_plain(name))
    damage = [f"shard {name[:80]!r} does not lie beside its index" for name in elsewhere]
    extra = sorted({*_lying(index)} - {*_shards_of(index)})
    damage += [
        f"shard {path.name[:80]} lies beside its index, which does not name it" for path in extra
    ]
    scans: list[Scan] = []
    holder: dict[str, str] = {}
    for path in _shards_of(index):
        try:
            found = _apart(path)
        except NotACheckpoint as problem:
            damage.append(f"shard {path.name[:80]}: {problem}")
            continue
        scans.append(found)
        damage += _wrong_in_shard(found, path.name[:80], listed, holder)
    return _joined(index, scans, damage)


def _wrong_in_shard(
    found: Scan, name: str, listed: dict[str, str], holder: dict[str, str]
) -> Iterator[str]:
    """``holder`` grows: the shard of each tensor that was seen."""
    yield from (f"shard {name}: {sentence}" for sentence in found.damage)
    held = {".".join(map(str, tensor.place)) for tensor in found.tensors}
    twice = sorted(held & {*holder})
    if twice:
        yield f"{twice[0][:80]} is in shard {holder[twice[0]]} and in {name}"
    holder.update(dict.fromkeys(held, name))
    missing = sorted(each for each, file in listed.items() if file == name and each not in held)
    if missing and not found.damage and not found.refused:
        yield (
            f"{len(missing)} tensors of its index are not in shard {name}, {missing[0][:80]} first"
        )


def _joined(index: Path, scans: list[Scan], damage: list[str]) -> Scan:
    return Scan(
        str(index),
        "sharded",
        sum(each.size for each in scans),
        max((each.modified for each in scans), default=0.0),
        tuple(tensor for each in scans for tensor in each.tensors),
        tuple(map(printable, damage)),
        tuple(f"shard {Path(each.path).name}: {limit}" for each in scans for limit in each.limits),
        aside=tuple(sentence for each in scans for sentence in each.aside),
        refused=next((each.refused for each in scans if each.refused), ""),
        foreign=tuple(sorted({name for each in scans for name in each.foreign})),
    )


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
