"""A trace file to a :class:`Trace`: exact structs first, the tolerant way for pieces that do not
fit, then event by event.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from auditor.errors import AuditProblem
from auditor.timeline import events as ev
from auditor.timeline.columns import Builder
from auditor.timeline.events import EXACT
from auditor.timeline.inflating import RAW_LIMIT, Inflating
from auditor.timeline.loose import (
    TOLERANT,
    Loose,
    LooseArgs,
    label,
    loose,
    real,
    small,
    text,
    whole,
)
from auditor.timeline.pieces import Pieces, split
from auditor.timeline.trace import TABLES, Codes, Device, Info, Trace

_RAW = msgspec.json.Decoder(list[msgspec.Raw])
_MISFITS = (
    msgspec.DecodeError,
    UnicodeDecodeError,
    ValueError,
    TypeError,
    OverflowError,
    RecursionError,
)


def read(path: Path | str, *, limit: int = RAW_LIMIT) -> Trace:
    """Read a torch.profiler trace (``.json`` or gzip, told apart by content).

    ``limit`` bounds the bytes of text that are read. What could not be read is named in
    ``warnings``; a file in which nothing is a trace raises :class:`auditor.errors.AuditProblem`.
    """
    path = Path(path)
    try:
        return _Reading(path, limit).trace()
    except OSError as error:
        raise AuditProblem(
            f"{path} cannot be read: {error.strerror or error}", "give the path of a trace file"
        ) from error


DEVICES = 256
"""Devices of one trace at most: a machine has up to 16, and a trace is of one process. More are
damage, and cost a lane each.
"""


EVENTS = 40_000_000
"""Events that are read at most: the 8 GB of text that are have 30 million, at 250 bytes each."""


class _Reading:
    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.source = Inflating(path, limit)
        self.pieces = Pieces(self.source)
        self.builder = Builder()
        self.fitting = Fitting()
        self.events = 0

    def trace(self) -> Trace:
        for piece in self.pieces:
            if isinstance(piece, bytes):
                self._piece(piece)
            else:
                self._tolerant([loose(event) for event in piece])
            if self.events > EVENTS:
                self.source.warnings.append(
                    f"only the first {self.events:,} events were read: the file holds more"
                )
                break
        built, fitted = self.builder, self.fitting
        tables = {group: built.table(group) for group in TABLES}
        self._check(tables["work"].device)
        return Trace(
            path=str(self.path),
            raw_bytes=self.source.raw_bytes,
            events=self.events,
            names=built.names.values_in_order,
            threads=built.threads.threads,
            texts=built.texts.values_in_order,
            **tables,
            counts=dict(built.counts + fitted.counts),
            info=info(self.pieces.head, self.pieces.tail),
            warnings=tuple(self._warnings()),
        )

    def _check(self, devices: Codes) -> None:
        if len(devices) > DEVICES and (number := len(np.unique(devices))) > DEVICES:
            raise AuditProblem(
                f"{self.path} names {number:,} devices, and no machine has more than {DEVICES}: "
                "the trace is damaged",
                "record the trace again",
            )

    def _piece(self, piece: bytes) -> None:
        piece = self.builder.clock.shorten(piece)
        try:
            exact = EXACT.decode(piece)
            self.builder.add(exact)
            self.events += len(exact)
            return
        except _MISFITS:
            pass
        try:
            events = TOLERANT.decode(piece)
        except _MISFITS:
            events = [loose(event) for event in self.pieces.salvage.each(_texts(piece))]
        self._tolerant(events)

    def _tolerant(self, events: list[Loose]) -> None:
        self.events += len(events)
        self.builder.add(fitted for fitted in map(self.fitting.fit, events) if fitted is not None)

    def _warnings(self) -> list[str]:
        salvage, built = self.pieces.salvage, self.builder
        said = [*self.source.warnings]
        if not (salvage.closed or self.pieces.complete):
            said.append(
                "the file ends in the middle of its events: the writer was stopped, or the copy is "
                "incomplete"
            )
        counted = (
            (salvage.mended, "event had a quote left unescaped in its name, and was mended"),
            (salvage.dropped, "event could not be read, and was left out"),
            (built.absurd + self.fitting.timeless, "span had no usable time, and was left out"),
            (built.negative, "span ended before it began, and was taken as an instant"),
            (self.fitting.unended, "span began and never ended, and was left out"),
        )
        said.extend(_counted(number, saying) for number, saying in counted if number)
        if not self.events:
            said.append("the trace holds no events")
        return said


def _texts(piece: bytes) -> list[bytes]:
    """The events of a piece as texts: as the decoder sees them, else cut at Kineto's boundaries."""
    try:
        return [bytes(raw) for raw in _RAW.decode(piece)]
    except _MISFITS:
        return split(piece[1:-1])


def _counted(number: int, saying: str) -> str:
    """``3 events: event ...`` in the plural that reads."""
    if number == 1:
        return f"1 {saying}"
    for one, many in (
        (r"^(event|span)\b", r"\1s"),
        (r"\bwas\b", "were"),
        (r"\bits name\b", "their names"),
        (r"\bit\b", "they"),
        ("an instant", "instants"),
    ):
        saying = re.sub(one, many, saying)
    return f"{number:,} {saying}"


# -- header ----------------------------------------------------------------------------------------
# What a trace says about itself before and after its events; damaged keys are passed over.


_KEY = re.compile(r'[\s,{]*"((?:[^"\\]|\\.)*)"\s*:\s*')
_DECODER = json.JSONDecoder(strict=False)
_FLAGS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_VERSIONS = (
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
)


def info(head: bytes, tail: bytes) -> Info:
    """Facts from the text before and behind the events."""
    keys = _keys(head) | _keys(tail)
    job = keys.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    versions = [(key, text(keys[key])) for key in _VERSIONS if key in keys]
    if "nccl_version" in job:
        versions.append(("nccl_version", text(job["nccl_version"])))
    return Info(
        devices=_devices(keys.get("deviceProperties")),
        rank=_natural(job.get("rank")),
        world_size=_natural(job.get("world_size")),
        backend=text(job["backend"]) if "backend" in job else None,
        base_ns=whole(keys.get("baseTimeNanoseconds"), 0),
        schema=_natural(keys.get("schemaVersion")),
        flags=tuple(flag for flag in _FLAGS if whole(keys.get(flag), 0) > 0),
        versions=tuple(versions),
        host=text(keys.get("host_name")),
    )


def _keys(raw: bytes) -> dict[str, Any]:
    """Top-level keys of a text that is the inside of an object, as far as they can be read."""
    content = raw.decode("utf-8", "replace").lstrip("\ufeff")
    keys: dict[str, Any] = {}
    at = 0
    while found := _KEY.match(content, at):
        try:
            keys[found[1]], at = _DECODER.raw_decode(content, found.end())
        except (ValueError, RecursionError):
            break
    return keys


def _natural(value: Any) -> int | None:
    number = whole(value)
    return number if number >= 0 else None


def _devices(given: Any) -> tuple[Device, ...]:
    entries = (
        [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []
    )
    return tuple(
        Device(
            index=whole(entry.get("id")),
            name=text(entry.get("name")),
            capability=(whole(entry.get("computeMajor"), 0), whole(entry.get("computeMinor"), 0)),
            memory_bytes=whole(entry.get("totalGlobalMem"), 0),
            multiprocessors=whole(entry.get("numSms"), 0),
        )
        for entry in entries
    )


# -- fitting ---------------------------------------------------------------------------------------
# The tolerant way: any event, in any spelling since 2021, into the struct of its kind.


_KINDS: dict[str, type[Struct]] = {
    "cpu_op": ev.Operator,
    "Operator": ev.Operator,
    "user_annotation": ev.Annotation,
    "kernel": ev.Kernel,
    "Kernel": ev.Kernel,
    "gpu_memcpy": ev.Memcpy,
    "Memcpy": ev.Memcpy,
    "gpu_memset": ev.Memset,
    "Memset": ev.Memset,
    "Runtime": ev.Call,
    "gpu_user_annotation": ev.Mark,
    "python_function": ev.Frame,
    "cuda_sync": ev.Sync,
}
_CALLS = frozenset(
    f"{maker}_{part}"
    for maker in ("cuda", "hip", "xpu", "privateuse1")
    for part in ("runtime", "driver")
)
_LEGACY_DEVICE = "CUDA functions"
_NO_ARGS = LooseArgs()


class Fitting:
    """Turns :class:`Loose` events into the structs of their kinds; pairs begins with ends; counts
    what holds no span.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.timeless = 0
        """Spans without a usable time."""
        self._open: dict[tuple[str, str], list[Loose]] = {}

    @property
    def unended(self) -> int:
        """Begins whose end never came."""
        return sum(map(len, self._open.values()))

    def fit(self, event: Loose) -> Struct | None:
        """The event as the struct of its kind; None if it holds no span (then it is counted)."""
        phase = event.ph if isinstance(event.ph, str) else ""
        args = event.args or _NO_ARGS
        if args.memory_bytes is not None and (
            phase in {"i", "I"} or event.cat == "cpu_instant_event"
        ):
            return self._memory(event, args)
        if phase == "X":
            return self._span(event, real(event.dur) if event.dur is not None else 0.0)
        if phase in {"B", "E"}:
            return self._paired(event, phase)
        self.counts[text(event.cat) or f"ph {phase[:8]}"] += 1
        return None

    def _paired(self, event: Loose, phase: str) -> Struct | None:
        begun = self._open.setdefault((str(event.pid), str(event.tid)), [])
        if phase == "B":
            begun.append(event)
            return None
        if not begun:
            self.counts["ph E"] += 1
            return None
        begin = begun.pop()
        return self._span(begin, real(event.ts) - real(begin.ts))

    def _memory(self, event: Loose, args: LooseArgs) -> Struct | None:
        time = real(event.ts)
        if not math.isfinite(time):
            self.timeless += 1
            return None
        size, allocated, reserved = map(whole, (args.memory_bytes, args.allocated, args.reserved))
        numbers = ev.MemoryArgs(
            size, allocated, reserved, small(args.device_type, bits=7), small(args.device_id)
        )
        return ev.Memory(text(event.name), label(event.tid), time, numbers, label(event.pid))

    def _span(self, event: Loose, dur: float) -> Struct | None:
        time = real(event.ts)
        if not (math.isfinite(time) and math.isfinite(dur)):
            self.timeless += 1
            return None
        args = event.args or _NO_ARGS
        category = text(event.cat)
        kind = _KINDS.get(category) or _guess(category, event, args)
        where = (text(event.name), label(event.tid), time, dur, label(event.pid))
        if kind is ev.Span:
            return ev.Span(*where, category)
        rest = _arguments(kind, event, args)
        return kind(*where) if rest is None else kind(*where, rest)


def _guess(category: str, event: Loose, args: LooseArgs) -> type[Struct]:
    """Kind of a span whose category is not in the table. Without any category, its arguments
    tell.
    """
    if category in _CALLS:
        return ev.Call
    if category:
        return ev.Span
    if event.pid == _LEGACY_DEVICE or (args.stream is not None and args.device is not None):
        name = text(event.name)
        return (
            ev.Memcpy
            if name.startswith("Memcpy")
            else ev.Memset
            if name.startswith("Memset")
            else ev.Kernel
        )
    return ev.Call if args.correlation is not None else ev.Operator


def _arguments(kind: type[Struct], event: Loose, args: LooseArgs) -> Any:
    if issubclass(kind, ev.Operator):
        numbers = whole(args.sequence), small(args.forward_thread)
        return ev.OperatorArgs(*numbers, args.shapes, args.types, args.stack, args.old_shapes)
    if issubclass(kind, ev.Call):
        return ev.CallArgs(whole(args.correlation))
    if issubclass(kind, ev.Kernel):
        return ev.WorkArgs(
            small(args.device), _stream(event, args), whole(args.correlation), whole(args.bytes)
        )
    if issubclass(kind, ev.Sync):
        return ev.SyncArgs(small(args.device), whole(args.stream), whole(args.correlation))
    return None


def _stream(event: Loose, args: LooseArgs) -> int:
    """The stream; where the arguments lack it, the number in a thread named ``stream 7``, or the
    thread's own.
    """
    if args.stream is not None:
        return whole(args.stream)
    return whole(str(event.tid).rpartition(" ")[2])
