"""A trace file to a :class:`Trace`. What torch.profiler wrote is read whole, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from auditor import amounts
from auditor.errors import AuditProblem
from auditor.timeline.columns import Builder
from auditor.timeline.events import EVENTS, Event
from auditor.timeline.inflating import RAW_LIMIT, Inflating
from auditor.timeline.pieces import Pieces, damaged, mended
from auditor.timeline.trace import TABLES, Device, Info, Trace

DEVICES = 256
"""Devices of one trace at most: a machine has up to 16, and a trace is of one process. More are
damage, and cost a lane each.
"""
MOST_EVENTS = 40_000_000
"""Events that are read at most: the 8 GB of text that are have 30 million, at 250 bytes each."""

_UNREAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read(path: Path | str, *, limit: int = RAW_LIMIT) -> Trace:
    """Read a torch.profiler trace (``.json`` or gzip, told apart by content).

    ``limit`` bounds the bytes of text that are read. A file that is no whole trace raises
    :class:`auditor.errors.AuditProblem`.
    """
    path = Path(path)
    source = Inflating(path, limit)
    try:
        return _read(path, source)
    except OSError as error:
        raise AuditProblem(
            f"{path} cannot be read: {error.strerror or error}", "give the path of a trace file"
        ) from error


def _read(path: Path, source: Inflating) -> Trace:
    pieces, built, events = Pieces(source), Builder(), 0
    for piece in pieces:
        try:
            found = _decoded(piece)
        except _UNREAD as error:
            said = f"behind {amounts.count(events, 'event')} stands what is none ({error})"
            raise damaged(path, said) from None
        built.add(found)
        events += len(found)
        if events > MOST_EVENTS:
            raise AuditProblem(
                f"{path} holds more than {MOST_EVENTS:,} events", "record fewer steps"
            )
    tables = {group: built.table(group) for group in TABLES}
    if built.absurd:
        raise damaged(path, f"{amounts.count(built.absurd, 'event')} at a time that no clock shows")
    devices = len(np.unique(tables["work"].device))
    if devices > DEVICES:
        raise damaged(path, f"it names {devices:,} devices, and no machine has more than {DEVICES}")
    return Trace(
        path=str(path),
        events=events,
        names=built.names.values_in_order,
        threads=built.threads.threads,
        texts=built.texts.values_in_order,
        **tables,
        info=_info(path, pieces.head, pieces.tail),
        warnings=() if events else ("the trace holds no events",),
    )


def _decoded(piece: bytes) -> list[Event]:
    try:
        return EVENTS.decode(piece)
    except msgspec.DecodeError:
        return EVENTS.decode(mended(piece))


# -- header ----------------------------------------------------------------------------------------
# What a trace says about itself before and after its events.


class _Device(Struct):
    id: int = -1
    name: str = ""
    major: int = field(default=0, name="computeMajor")
    minor: int = field(default=0, name="computeMinor")
    memory: int = field(default=0, name="totalGlobalMem")


class _Job(Struct):
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    nccl: str = field(default="", name="nccl_version")


class _Header(Struct):
    devices: list[_Device] = field(default_factory=list, name="deviceProperties")
    job: _Job = field(default_factory=_Job, name="distributedInfo")
    host: str = field(default="", name="host_name")


_HEADER = msgspec.json.Decoder(_Header, strict=False)
_KEYS = msgspec.json.Decoder(dict[str, Any])
_VERSIONS = (
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
)


def _info(path: Path, head: bytes, tail: bytes) -> Info:
    """Facts from the text before and behind the events."""
    if not head:
        return Info()
    try:
        told, keys = _HEADER.decode(head + b"]" + tail), _KEYS.decode(head + b"]" + tail)
    except _UNREAD as error:
        raise damaged(path, f"what stands around its events is no header ({error})") from None
    job = told.job
    versions = [(key, str(keys[key])) for key in _VERSIONS if key in keys]
    if job.nccl:
        versions.append(("nccl_version", job.nccl))
    return Info(
        devices=tuple(
            Device(each.id, each.name, (each.major, each.minor), each.memory)
            for each in told.devices
        ),
        rank=job.rank,
        world_size=job.world_size,
        backend=job.backend,
        versions=tuple(versions),
        host=told.host,
    )
