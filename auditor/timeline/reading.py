"""A trace file to a :class:`Trace`. What torch.profiler wrote is read whole, or not at all."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from auditor import amounts
from auditor.errors import AuditProblem
from auditor.timeline.columns import EVENTS, Builder, Event
from auditor.timeline.trace import TABLES, Device, Info, Trace

DEVICES = 256
"""Devices of one trace at most: a machine has up to 16, and a trace is of one process. More are
damage, and cost a lane each.
"""
MOST_EVENTS = 40_000_000
"""Events that are read at most: the 8 GB of text that are have 30 million, at 250 bytes each."""

_UNREAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_ERRORS: list[Any] = [zlib.error]
_decompressor: Callable[[int], Any] = zlib.decompressobj
try:
    from isal import isal_zlib
except ImportError:  # no wheel for this machine: the standard library is 4 times slower at this, and this is a tenth of reading
    pass
else:
    _ERRORS.append(isal_zlib.error)
    _decompressor = isal_zlib.decompressobj

RAW_LIMIT = 8 << 30
"""Bytes of text that are read at most: a file from a stranger may inflate a thousandfold."""

RATIO, UNPACKED_AT_LEAST = 100, 64 << 20
"""Bytes of text for each packed byte that are read of a gzip file at most, and of a small one.
Traces inflate 15-18 times, those of one operator in a loop 40 times; a bomb a thousand times."""

AGAIN = "record the trace again, or copy it again once its writer has ended"

PLAIN_CHUNK = 256 << 10
GZIP_CHUNK = 16 << 10  # traces inflate 15-18 times, so about PLAIN_CHUNK of text
TEXT_CHUNK = (
    2 << 20
)  # of a bomb it would be a thousand times as much, and each byte of text can become 50 bytes of events
GZIP_MAGIC = b"\x1f\x8b"


class Inflating:
    """Iterates over chunks of text. ``raw_bytes`` is complete once the iteration has ended.

    Raises AuditProblem where the packed data is damaged or longer than any trace.
    """

    def __init__(self, path: Path, limit: int = RAW_LIMIT) -> None:
        self.path = path
        self.limit = limit
        self.raw_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            packed = file.read(2) == GZIP_MAGIC
            file.seek(0)
            limit, why = self.limit, "record fewer steps"
            real = max(UNPACKED_AT_LEAST, RATIO * self.path.stat().st_size)
            if packed and real < limit:
                limit, why = real, f"it inflates more than {RATIO}-fold, as no trace does"
            chunks = self._inflated(file) if packed else iter(lambda: file.read(PLAIN_CHUNK), b"")
            for chunk in chunks:
                self.raw_bytes += len(chunk)
                if self.raw_bytes > limit:
                    raise AuditProblem(f"{self.path} holds more than {limit >> 20} MiB", why)
                yield chunk

    def _inflated(self, file: Any) -> Iterator[bytes]:
        stream = _decompressor(31)
        while packed := file.read(GZIP_CHUNK):
            while packed:
                try:
                    text = stream.decompress(packed, TEXT_CHUNK)
                except tuple(_ERRORS):
                    said = f"its gzip data cannot be unpacked after {self.raw_bytes:,} bytes"
                    raise AuditProblem(f"{self.path} is damaged: {said}", AGAIN) from None
                if text:
                    yield text
                if not stream.eof:
                    packed = stream.unconsumed_tail
                    continue
                packed = stream.unused_data or file.read(GZIP_CHUNK)
                if packed[:2] != GZIP_MAGIC:
                    return
                stream = _decompressor(31)  # members put one behind another are one text
        raise AuditProblem(f"{self.path} is damaged: its gzip data ends in the middle", AGAIN)


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


# -- pieces ----------------------------------------------------------------------------------------

HEAD_LIMIT = 64 << 20
"""Bytes before the first event and behind the last one (tables of devices and process groups) that
are looked through at most.
"""
PIECE_LIMIT = 64 << 20
"""Bytes without a place to cut at that are read at most."""

LEARNT_FROM = 1 << 20
"""Bytes that the first two events take at most; a longer text is cut nowhere."""

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(r'\s*,\s*\{\s*"[^"\\]*"')
_DECODER = json.JSONDecoder(strict=False)


_NAME = re.compile(rb'"name": "((?:[^"\n]|"(?!,))*)')
_BEHIND = re.compile(rb'",\s*"pid": ')
_QUOTE = re.compile(rb'(?<!\\)"')


def mended(text: bytes) -> bytes:
    """The text with the quotes in names escaped, which Kineto leaves as they are up to torch 2.13
    (mended in its eba157ad).
    """

    def escaped(found: re.Match[bytes]) -> bytes:
        if b'"' not in found[1] or not _BEHIND.match(text, found.end()):
            return found[0]
        return b'"name": "' + _QUOTE.sub(rb"\"", found[1])

    return _NAME.sub(escaped, text)


def damaged(path: object, said: str) -> AuditProblem:
    """The one sentence about a trace of which not all can be read."""
    return AuditProblem(f"{path} is damaged: {said}", AGAIN)


class Pieces:
    """Iterates over JSON lists of events as text. ``head`` and ``tail``, what stands around the
    events, are final once the iteration has ended. All raise AuditProblem where the text is no
    whole trace.
    """

    def __init__(self, chunks: Inflating) -> None:
        self.head = b""
        self.tail = b""
        self._path = chunks.path
        self._chunks = iter(chunks)

    def __iter__(self) -> Iterator[bytes]:
        rest, between = self._learnt(self._first_event())
        parts, size, opening = [rest], len(rest), between.find(b"{")
        while True:
            last = parts[-1]
            # one that lies across two chunks is not seen, and stays inside a piece
            cut = last.rfind(between) if between else -1
            if cut >= 0:
                yield b"".join((b"[", *parts[:-1], memoryview(last)[: cut + 1], b"]"))
                parts = [last[cut + opening :]]
                size = len(parts[0])
            elif size > PIECE_LIMIT:
                raise damaged(self._path, f"no event ends in {PIECE_LIMIT >> 20} MiB of it")
            if not (more := next(self._chunks, b"")):
                break
            parts.append(more)
            size += len(more)
        yield self._last(b"".join(parts))

    def _first_event(self) -> bytes:
        """Text behind the ``[`` of the events; raises where there is none."""
        start = b""
        while not start and (more := next(self._chunks, b"")):
            start = more.lstrip(b"\xef\xbb\xbf \t\r\n")
        if start[:1] == b"[":
            return start[1:]
        parts, size, window = [start], len(start), start
        while start[:1] == b"{":
            if found := _EVENTS.search(window):
                behind = len(window) - found.end()
                text = b"".join(parts)
                self.head = text[: len(text) - behind]
                return text[len(text) - behind :]
            if size > HEAD_LIMIT or not (more := next(self._chunks, b"")):
                break
            parts.append(more)
            size += len(more)
            window = window[-64:] + more  # the key may lie across two chunks
        raise self._not_a_trace(start)

    def _not_a_trace(self, start: bytes) -> AuditProblem:
        path = self._path
        if not start:
            return AuditProblem(
                f"{path} holds no text", "record the trace again, or copy it again in binary mode"
            )
        if start[:1] == b"<":
            return AuditProblem(
                f"{path} is a web page, not a trace", "download the raw file behind that page"
            )
        if start[:1] == b"{":
            return AuditProblem(
                f'{path} holds no "traceEvents"',
                "export it with torch.profiler's export_chrome_trace()",
            )
        return AuditProblem(
            f"{path} is not JSON", "a trace is the .json or .json.gz that torch.profiler wrote"
        )

    def _learnt(self, rest: bytes) -> tuple[bytes, bytes]:
        """The text that was read so far, and what stands between its first two events: the end of
        one, a comma, the first key of the next. Empty where there are fewer than two.
        """
        tried = 0
        while True:
            if len(rest) >= 2 * tried:  # else time grows with the square of a long event
                tried = len(rest)
                if between := _between(rest) or _between(mended(rest)):
                    return rest, between
            if len(rest) > LEARNT_FROM or not (more := next(self._chunks, b"")):
                return rest, b""
            rest += more

    def _last(self, rest: bytes) -> bytes:
        """The last piece: its list is closed by ``]``, and the file's other keys follow."""
        found = _closed(rest) or _closed(mended(rest))
        if found is None:
            said = "it ends in the middle of its events, or they are no JSON"
            raise damaged(self._path, said)
        piece, self.tail = found
        return piece


def _closed(raw: bytes) -> tuple[bytes, bytes] | None:
    """The list of events that a text begins with, and what follows; None where it is not whole."""
    try:
        text = "[" + raw.decode("utf-8")
        _, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return text[:end].encode(), text[end:].encode()


def _between(raw: bytes) -> bytes:
    """What stands between the first two events of a text; empty where they are not whole."""
    text = raw.decode("utf-8", "surrogateescape").lstrip()
    try:
        _, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return b""
    found = _BETWEEN.match(text, end) if text[end - 1] == "}" else None
    return b"}" + found[0].encode("utf-8", "surrogateescape") if found is not None else b""
