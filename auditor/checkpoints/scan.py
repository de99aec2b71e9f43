"""One checkpoint from its path to what it holds, tensor by tensor, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, cast

from auditor.checkpoints import legacy, safetensors, structure, values, zipped
from auditor.checkpoints.container import Container
from auditor.checkpoints.contents import Format, Malformed, NotACheckpoint, Role, Scan, Stored, Tally, TensorFacts

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".tar")
"""Files of a folder that are taken for checkpoints."""

INDEX = ".index.json"
"""End of the name of the file that lists the shards of a checkpoint (Hugging Face)."""

TIMES = 4
"""How often the bytes of a file are looked at at most, counted over all views of the same storage."""

ZIP_MAGIC, PICKLE_MAGIC = b"PK\x03\x04", b"\x80"


def scan(path: Path) -> Scan:
    """Read one file. Raises :class:`NotACheckpoint` where it is of no known format; damage is part of the result."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            empty = Scan(str(path), _format(file, size), size, path.stat().st_mtime)
            try:
                return _described(empty, _opened(file, empty))
            except Malformed as problem:
                return replace(empty, damage=(str(problem),))
    except OSError as error:
        raise NotACheckpoint(f"it cannot be read: {error.strerror or type(error).__name__}") from None


def _format(file: IO[bytes], size: int) -> Format:
    head = file.read(16)
    if not size:
        raise NotACheckpoint("it is empty")
    if head.startswith(ZIP_MAGIC):
        return "torch zip"
    if head.startswith(PICKLE_MAGIC):
        return "torch legacy"
    if safetensors.looks_like(head, size):
        return "safetensors"
    if head[:4].strip(b"\0") == b"" and size > 16:
        raise NotACheckpoint("it begins with zeros: its beginning was never written, or it is no checkpoint")
    raise NotACheckpoint("it is neither a zip archive or pickle of torch.save nor a safetensors file")


def _opened(file: IO[bytes], scan: Scan) -> Container:
    open_one = {"torch zip": zipped.open_zip, "torch legacy": legacy.open_legacy, "safetensors": safetensors.open_safetensors}
    return open_one[scan.format](file, scan.size)


def _described(empty: Scan, container: Container) -> Scan:
    found = structure.structure(container.tree)
    tensors = _tallied(container, found, empty.size)
    return replace(
        empty,
        tensors=tuple(tensors),
        damage=tuple(container.damage),
        limits=tuple(container.limits),
        foreign=container.foreign,
        optimizers=tuple(structure.optimizer_facts(path, state, tensors) for path, state in found.optimizers.items()),
        schedulers=tuple(structure.scheduler_facts(path, state) for path, state in found.schedulers.items()),
        scaler=found.scaler,
        rng=found.rng,
        progress=found.progress,
    )


def _tallied(container: Container, found: structure.Structure, size: int) -> list[TensorFacts]:
    """Each tensor with its tally; views of the same bytes are looked at once."""
    known: dict[Stored, Tally | None] = {}
    described = []
    budget = TIMES * size
    for path, stored in found.tensors:
        if stored not in known:
            budget -= min(stored.span, size)
            known[stored] = _tally(container, path, stored) if budget > 0 else None
        role = cast("Role", found.role(path))
        described.append(TensorFacts(structure.named(path), stored.dtype, stored.shape, role, known[stored], path))
    if budget <= 0:
        container.limits.append("its tensors share storages so often that not all of them were looked at")
    return described


def _tally(container: Container, path: structure.Path, stored: Stored) -> Tally | None:
    try:
        return values.tally(stored, partial(container.read, stored.storage), big_endian=container.big_endian)
    except Malformed as problem:
        container.damage.append(f"{structure.named(path)}: {problem}")
    except (ValueError, OverflowError, MemoryError) as error:  # numbers in the file that no array can have
        container.damage.append(f"{structure.named(path)}: its description is damaged ({type(error).__name__})")
    return None


# -- folders -----------------------------------------------------------------------------------------------------------


def checkpoints_in(path: Path) -> Iterable[Path]:
    """The checkpoints that a path stands for: itself, or those of a folder (a sharded one is its index)."""
    if not path.is_dir():
        return (path,)
    files = sorted(each for each in path.iterdir() if each.is_file())
    indexes = [each for each in files if each.name.endswith(INDEX)]
    shards = {each for index in indexes for each in _shards(index).values()}
    return (*indexes, *(each for each in files if each.suffix in SUFFIXES and each.name not in shards))


def scan_any(path: Path) -> Scan:
    """Read a file, or all shards that an index lists. Raises :class:`NotACheckpoint`."""
    return _sharded(path) if path.name.endswith(INDEX) else scan(path)


def _sharded(index: Path) -> Scan:
    listed = _shards(index)
    if not listed:
        raise NotACheckpoint("it is no index of shards: it has no weight_map")
    scans, damage = [], []
    for name in sorted(set(listed.values())):
        try:
            scans.append(scan(index.parent / name))
        except NotACheckpoint as problem:
            damage.append(f"shard {name[:80]}: {problem}")
    damage += [f"shard {Path(each.path).name}: {sentence}" for each in scans for sentence in each.damage]
    tensors = tuple(tensor for each in scans for tensor in each.tensors)
    missing = sorted(set(listed) - {tensor.name for tensor in tensors})
    if missing and not damage:
        damage.append(f"{len(missing)} tensors of its index are in no shard, {missing[0][:80]} first")
    return Scan(
        str(index),
        "sharded",
        sum(each.size for each in scans),
        max((each.modified for each in scans), default=0.0),
        tensors,
        tuple(damage),
        foreign=tuple(sorted({name for each in scans for name in each.foreign})),
    )


def _shards(index: Path) -> dict[str, str]:
    """File of each tensor, by name; only files beside the index."""
    try:
        content = json.loads(index.read_bytes()[: 2**28])
    except (OSError, ValueError, RecursionError):
        return {}
    listed = content.get("weight_map") if isinstance(content, dict) else None
    pairs = listed.items() if isinstance(listed, dict) else ()
    return {str(name): str(file) for name, file in pairs if "/" not in str(file) and "\\" not in str(file) and file}
