"""A trace file to a :class:`Trace`. What torch.profiler wrote is read whole, or not at all."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct, field
from numpy.typing import NDArray

from auditor import amounts
from auditor.errors import AuditProblem
from auditor.timeline.trace import KERNEL, MEMCPY, MEMSET, TABLES, Device, Info, Trace, schema

DEVICES = 256
"""Devices of one trace at most: a machine has up to 16. More are damage; each costs a lane."""
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

    Raises AuditProblem if the packed data is damaged or longer than any trace.
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
                    raise damaged(self.path, said) from None
                if text:
                    yield text
                if not stream.eof:
                    packed = stream.unconsumed_tail
                    continue
                packed = stream.unused_data or file.read(GZIP_CHUNK)
                if packed[:2] != GZIP_MAGIC:
                    return
                stream = _decompressor(31)  # members put one behind another are one text
        raise damaged(self.path, "its gzip data ends in the middle")


def read(path: Path | str, *, limit: int = RAW_LIMIT) -> Trace:
    """Read a torch.profiler trace (``.json`` or gzip, told apart by content).

    ``limit`` bounds the bytes of text that are read. A file that is no whole trace raises
    :class:`auditor.errors.AuditProblem`.
    """
    path = Path(path)
    source = Inflating(path, limit)
    try:
        return _read_trace(path, source)
    except OSError as error:
        raise AuditProblem(
            f"{path} cannot be read: {error.strerror or error}", "give the path of a trace file"
        ) from error


def _read_trace(path: Path, source: Inflating) -> Trace:
    pieces, built, events = Pieces(source), Builder(), 0
    for piece in pieces:
        try:
            found = _decoded(piece)
        except _UNREAD as error:
            said = f"behind {amounts.count(events, 'event')} the text is not an event ({error})"
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
        events=events,
        names=built.names.values_in_order,
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


class _Job(Struct):
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    nccl: str = field(default="", name="nccl_version")


class _Header(Struct):
    devices: list[Device] = field(default_factory=list, name="deviceProperties")
    job: _Job = field(default_factory=_Job, name="distributedInfo")
    host: str = field(default="", name="host_name")


_HEADER = msgspec.json.Decoder(_Header, strict=False)
_KEYS = msgspec.json.Decoder(dict[str, Any])
_VERSIONS = """
    cupti_version cuda_runtime_version cuda_driver_version hip_runtime_version hip_driver_version
    roctracer_version
    """.split()


def _info(path: Path, head: bytes, tail: bytes) -> Info:
    """Facts from the text before and behind the events."""
    if not head:
        return Info()
    try:
        told, keys = _HEADER.decode(head + b"]" + tail), _KEYS.decode(head + b"]" + tail)
    except _UNREAD as error:
        raise damaged(path, f"the text around its events is not a header ({error})") from None
    job = told.job
    versions = [(key, str(keys[key])) for key in _VERSIONS if key in keys]
    if job.nccl:
        versions.append(("nccl_version", job.nccl))
    return Info(
        devices=tuple(told.devices),
        rank=job.rank,
        world_size=job.world_size,
        backend=job.backend,
        versions=tuple(versions),
        host=told.host,
    )


# -- pieces ----------------------------------------------------------------------------------------

HEAD_LIMIT = 64 << 20
"""Bytes before the first event and behind the last one that are looked through at most."""
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
    """The text with quotes in names escaped, as Kineto does from torch 2.14 on (eba157ad)."""

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
    events, are final once the iteration has ended. All raise AuditProblem if the text is no
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
        """Text behind the ``[`` of the events; raises if there is no such bracket."""
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
        known = {
            b"": ("holds no text", "record the trace again, or copy it again in binary mode"),
            b"<": ("is a web page, not a trace", "download the raw file behind that page"),
            b"{": (
                'holds no "traceEvents"',
                "export it with torch.profiler's export_chrome_trace()",
            ),
        }
        other = "is not JSON", "a trace is the .json or .json.gz that torch.profiler wrote"
        said, cure = known.get(start[:1], other)
        return AuditProblem(f"{self._path} {said}", cure)

    def _learnt(self, rest: bytes) -> tuple[bytes, bytes]:
        """The text that was read so far, and what stands between its first two events: the end of
        one, a comma, the first key of the next. Empty if there are fewer than two.
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
            said = "it ends in the middle of its events, or they are not JSON"
            raise damaged(self._path, said)
        piece, self.tail = found
        return piece


def _closed(raw: bytes) -> tuple[bytes, bytes] | None:
    """The list of events that a text begins with, and what follows; None if it is not whole."""
    try:
        text = "[" + raw.decode("utf-8")
        _, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return text[:end].encode(), text[end:].encode()


def _between(raw: bytes) -> bytes:
    """What stands between the first two events of a text; empty if they are not whole."""
    text = raw.decode("utf-8", "surrogateescape").lstrip()
    try:
        _, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return b""
    found = _BETWEEN.match(text, end) if text[end - 1] == "}" else None
    return b"}" + found[0].encode("utf-8", "surrogateescape") if found is not None else b""


# -- columns ---------------------------------------------------------------------------------------
# Decoded events to columns, piece by piece, so that no piece's objects outlive it.


TIME_LIMIT_US = 4.0e15
"""Microseconds (the year 2096 as epoch time): a later time is taken for damage."""
NAME_LIMIT = 4096
TEXT_LIMIT = 1 << 16
"""Characters of one name, and bytes of one shape or stack text, that are kept."""
TOTAL_LIMIT = 512 << 20
"""Characters of all different names that are kept; later ones share one name."""

Columns = tuple[NDArray[Any], ...]


EMPTY = Raw(b"")


class Args(Struct, gc=False, frozen=True):
    """Arguments of an event. Numbers are of any type: AMD writes some as text."""

    forward_thread: Any = field(default=-1, name="Fwd thread id")
    shapes: Raw = field(default=EMPTY, name="Input Dims")
    old_shapes: Raw = field(default=EMPTY, name="Input dims")
    types: Raw = field(default=EMPTY, name="Input type")
    correlation: Any = -1
    device: Any = -1
    stream: Any = -1
    bytes: Any = -1
    memory_bytes: Any = field(default=None, name="Bytes")
    allocated: Any = field(default=-1, name="Total Allocated")
    reserved: Any = field(default=-1, name="Total Reserved")
    device_type: Any = field(default=-1, name="Device Type")
    device_id: Any = field(default=-1, name="Device Id")


class Event(Struct, gc=False):
    """Any event: a span (``ph`` X), an instant, an arrow, a label."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = math.nan
    dur: float = 0.0
    tid: int | str = -1
    pid: int | str = -1
    args: Args = Args()


EVENTS = msgspec.json.Decoder(list[Event], strict=False)

ANNOTATION, MEMORY = "user_annotation", "cpu_instant_event"
WORK = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
}
"""Categories of work on a device; those that begin with a capital are Kineto's of 2021."""

GROUPS = {
    "cpu_op": "operators",
    "Operator": "operators",
    ANNOTATION: "operators",
    "Runtime": "calls",
    **dict.fromkeys(WORK, "work"),
    "python_function": "frames",
    "cuda_sync": "syncs",
} | {
    f"{maker}_{part}": "calls"
    for maker in ("cuda", "hip", "xpu", "privateuse1")
    for part in ("runtime", "driver")
}
"""Category of a span -> the table that it goes into; all others go into ``others``."""


def group_of(event: Event) -> str:
    """The table of a span; without a category (torch.autograd.profiler) by arguments."""
    if event.cat:
        return GROUPS.get(event.cat, "others")
    args = event.args
    if event.pid == "CUDA functions" or (args.stream != -1 and args.device != -1):
        kinds = {"Memcpy", "Memset"}
        event.cat = event.name[:6] if event.name[:6] in kinds else "kernel"
        return "work"
    return "calls" if args.correlation != -1 else "operators"


def is_memory(event: Event) -> bool:
    """Whether memory was allocated or freed."""
    instant = event.ph in {"i", "I"} or event.cat == MEMORY
    return instant and event.args.memory_bytes is not None


_LIMIT = 2**62


def whole(value: Any) -> int:
    """``value`` as a number that fits a column, or -1."""
    if isinstance(value, str):
        try:
            value = int(value, 0) if len(value) < 32 else -1
        except ValueError:
            return -1
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) else -1
    return value if isinstance(value, int) and -_LIMIT < value < _LIMIT else -1


def small(value: Any, bits: int = 31) -> int:
    """``value`` as a number that fits a narrow column, or -1."""
    number = whole(value)
    return number if abs(number) < 1 << bits else -1


class Numbered(dict[Any, int]):
    """Values to codes by appearance; over-long ones are cut; beyond the limit they are ``""``."""

    def __init__(self, limit: int, empty: str | bytes) -> None:
        super().__init__()
        self.values_in_order: list[Any] = []
        self._limit = limit
        self._room = TOTAL_LIMIT
        self._empty = empty

    def __missing__(self, value: Any) -> int:
        short = value[: self._limit]
        if len(short) > self._room:
            short = self._empty
        if len(short) != len(value):
            return self[short]
        self._room -= len(short)
        self.values_in_order.append(value)
        code = self[value] = len(self.values_in_order) - 1
        return code


class NumberedThreads(dict[tuple[Any, Any], int]):
    """(pid, tid) to codes; ``"25738"`` and ``25738`` are one thread."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str], int] = {}

    def __missing__(self, key: tuple[Any, Any]) -> int:
        thread = str(key[0])[:NAME_LIMIT], str(key[1])[:NAME_LIMIT]
        code = self[key] = self._seen.setdefault(thread, len(self._seen))
        return code


class Builder:
    """Collects columns. :meth:`add` raises on a value that fits none, and adds nothing then."""

    def __init__(self) -> None:
        self.names = Numbered(NAME_LIMIT, "")
        self.texts = Numbered(TEXT_LIMIT, b"")
        self.texts[b""] = -1
        self.threads = NumberedThreads()
        self.absurd = 0
        """Spans whose time cannot be: beyond 2096, or not a number."""
        self._parts: dict[str, list[Columns]] = {group: [] for group in TABLES}

    def add(self, events: Iterable[Event]) -> None:
        """Take the events of a piece."""
        lists: dict[str, list[Event]] = {group: [] for group in TABLES}
        append = {category: lists[group].append for category, group in GROUPS.items()}
        for event in events:
            if event.ph == "X" and event.cat != MEMORY:
                (append.get(event.cat) or lists[group_of(event)].append)(event)
            elif is_memory(event):
                lists["memory"].append(event)
        for group, batch in lists.items():
            if batch:
                self._parts[group].append(
                    tuple(
                        (COLUMNS.get(f"{group} {name}") or COLUMNS[name])(self, batch)
                        for name, _ in schema(TABLES[group])
                    )
                )

    def table(self, group: str) -> Any:
        """The finished table of a group; its pieces go, and wrong times are counted."""
        parts = self._parts.pop(group)
        names = schema(TABLES[group])
        if not parts:
            return TABLES[group](*(np.empty(0, dtype) for _, dtype in names))
        columns = [np.concatenate([part[place] for part in parts]) for place in range(len(names))]
        parts.clear()
        good = np.abs(columns[0]) < TIME_LIMIT_US
        if names[1][0] == "end":
            good &= columns[1] < TIME_LIMIT_US
        if not good.all():
            self.absurd += int(len(good) - good.sum())
            columns = [column[good] for column in columns]
        start = columns[0] = nanoseconds(columns[0])
        if names[1][0] == "end":
            columns[1] = start + nanoseconds(np.maximum(columns[1], 0))
        return TABLES[group](*columns)

    def coded(self, values: list[str]) -> NDArray[np.int32]:
        """Names as codes."""
        return np.fromiter(map(self.names.__getitem__, values), np.int32, len(values))

    def thread_of(self, batch: Sequence[Event]) -> NDArray[np.int32]:
        """The thread of each event, as a code."""
        pids, tids = [event.pid for event in batch], [event.tid for event in batch]
        # nearly always: neighbours in a file are of one thread
        if pids.count(pids[0]) == tids.count(tids[0]) == len(batch):
            return np.full(len(batch), self.threads[pids[0], tids[0]], np.int32)
        return np.fromiter(
            map(self.threads.__getitem__, zip(pids, tids, strict=True)), np.int32, len(batch)
        )

    def text_of(self, values: list[Any]) -> NDArray[np.int32]:
        """JSON texts as codes."""
        # none of them given, or all of them empty: the usual case, and cheap
        if values.count(values[0]) == len(values):
            return np.full(len(values), self.texts[bytes(values[0])], np.int32)
        # 3 times faster than bytes() of each; no JSON text holds a NUL
        texts = b"\0".join(values).split(b"\0")
        if len(texts) != len(values):
            texts = list(map(bytes, values))
        return np.fromiter(map(self.texts.__getitem__, texts), np.int32, len(values))


def nanoseconds(microseconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Exact to the ns for text with three decimals; ``round(us * 1000)`` is often off by one."""
    whole = np.floor(microseconds)
    return whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)


def _column(values: list[Any], dtype: Any, read: Callable[[Any], int]) -> NDArray[Any]:
    """Numbers as a column; other values, or too large ones, are -1."""
    try:
        return np.fromiter(values, dtype, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(read, values), dtype, len(values))


_ints = partial(_column, dtype=np.int64, read=whole)
_codes = partial(_column, dtype=np.int32, read=small)


def _stream(event: Event) -> Any:
    given = event.args.stream
    return whole(str(event.tid).rpartition(" ")[2]) if given == -1 else given


def _devices(batch: Sequence[Event]) -> NDArray[np.int32]:
    """Device of each event: its argument, else its process, which is how devices are shown."""
    given = _codes([event.args.device for event in batch])
    if (given < 0).any():
        return np.where(given < 0, _codes([event.pid for event in batch]), given)
    return given


COLUMNS: dict[str, Callable[[Builder, Sequence[Event]], NDArray[Any]]] = {
    "start": lambda _, batch: np.fromiter([event.ts for event in batch], np.float64, len(batch)),
    "end": lambda _, batch: np.fromiter([event.dur for event in batch], np.float64, len(batch)),
    "name": lambda built, batch: built.coded([event.name for event in batch]),
    "category": lambda built, batch: built.coded([event.cat for event in batch]),
    "thread": lambda built, batch: built.thread_of(batch),
    "annotation": lambda _, batch: np.fromiter(
        [event.cat == ANNOTATION for event in batch], np.bool_, len(batch)
    ),
    "forward_thread": lambda _, batch: _codes([event.args.forward_thread for event in batch]),
    "shapes": lambda built, batch: built.text_of(
        [
            arg.shapes if arg.old_shapes is EMPTY else arg.old_shapes
            for arg in [event.args for event in batch]
        ]
    ),
    "types": lambda built, batch: built.text_of([event.args.types for event in batch]),
    "kind": lambda _, batch: np.fromiter([WORK[each.cat] for each in batch], np.int8, len(batch)),
    "correlation": lambda _, batch: _ints([event.args.correlation for event in batch]),
    "device": lambda _, batch: _devices(batch),
    "stream": lambda _, batch: _ints([event.args.stream for event in batch]),
    "work stream": lambda _, batch: _ints([_stream(event) for event in batch]),
    "bytes": lambda _, batch: _ints([event.args.bytes for event in batch]),
    "allocated": lambda _, batch: _ints([event.args.allocated for event in batch]),
    "reserved": lambda _, batch: _ints([event.args.reserved for event in batch]),
    "device_type": lambda _, batch: np.fromiter(
        [small(event.args.device_type, 7) for event in batch], np.int8, len(batch)
    ),
    "memory device": lambda _, batch: _codes([event.args.device_id for event in batch]),
}
"""How each column is made of a piece's events, by its name, or by its table and name. Times are in
us, as they are written, and an end is a duration yet.
"""
