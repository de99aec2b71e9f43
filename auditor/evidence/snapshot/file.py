"""The memory snapshot of a recording, or one alone: plain data in torch's schema, read once."""

import contextlib
import faulthandler
import gzip
import io
import itertools
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import msgspec

from auditor.evidence.table import Evidence
from auditor.isolation import ReaderDied, isolated, seconds_for
from auditor.machine import uncollected
from auditor.recordings.folder import AT_OOM
from auditor.rule import NotLooked
from auditor.typed_reading import convert

BLOCK_LIMIT = 2_000_000
"""Blocks read at most: a real snapshot of 72 GB has a few thousand; a hostile one repeats."""
EVENT_LIMIT = 5_000_000
"""Events of one device that are read at most, for the same reason."""

Event = Mapping[str, Any]


@dataclass(frozen=True)
class SnapshotData:
    """What torch wrote. ``traces`` has one history for each device, empty if none was recorded."""

    name: str
    segments: Sequence[Event]
    traces: Sequence[Sequence[Event]]
    settings: Mapping[str, Any]
    at_oom: bool

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices with memory or with a history."""
        told = {
            number
            for number, trace in enumerate(self.traces)
            if any(event["action"] in CHANGES for event in trace)
        }
        return tuple(sorted({int(segment.get("device", 0)) for segment in self.segments} | told))

    def of(self, device: int) -> Sequence[Event]:
        """The segments of one device."""
        return [segment for segment in self.segments if segment.get("device", 0) == device]

    def trace(self, device: int) -> Sequence[Event]:
        """The history of one device, the oldest event first; empty if there is none."""
        trace = self.traces[device] if device < len(self.traces) else ()
        return trace if any(event["action"] in CHANGES for event in trace) else ()

    def as_torch(self) -> dict[str, Any]:
        """In the form of ``torch.cuda.memory._snapshot()``."""
        return {
            "segments": self.segments,
            "device_traces": self.traces,
            "allocator_settings": self.settings,
        }


def snapshot_of(evidence: Evidence) -> SnapshotData:
    """The recording's snapshot, read once.

    Raises :class:`NotLooked` if there is none, it is no plain data, or it has another layout
    than torch's.
    """
    return evidence.once(_load)


def has_history(evidence: Evidence) -> bool:
    """Whether the snapshot tells how its memory came about, also of one that cannot be read."""
    try:
        return any(snapshot_of(evidence).traces)
    except NotLooked:
        return True


def _load(evidence: Evidence) -> SnapshotData:
    path = evidence.recording.snapshot
    if path is None:
        raise NotLooked("no CUDA memory snapshot was recorded")
    try:
        return _snapshot_data(
            path.name, load_plain(path), named=path.name in AT_OOM and evidence.bare != "snapshot"
        )
    except RefusedPickle as refused:
        raise NotLooked(str(refused)) from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise NotLooked(f"the memory snapshot has another layout than torch's: {error}") from None


def _snapshot_data(name: str, data: Any, *, named: bool) -> SnapshotData:
    """Of any age: the bare list of ``memory_snapshot()`` has no history, 2023's no settings."""
    form: Mapping[str, Any] = {"segments": data} if isinstance(data, list) else data
    segments, traces = form["segments"], form.get("device_traces") or ()
    if sum(len(segment["blocks"]) for segment in segments) > BLOCK_LIMIT:
        raise NotLooked(f"the memory snapshot has more than {BLOCK_LIMIT} blocks")
    if sum(len(trace) for trace in traces) > EVENT_LIMIT:
        raise NotLooked(f"the memory snapshot's history has more than {EVENT_LIMIT} events")
    check(form)
    ended = any(_ends_in_oom(trace) for trace in traces)
    return SnapshotData(
        name, segments, traces, form.get("allocator_settings") or {}, ended or named
    )


def _ends_in_oom(trace: Sequence[Event]) -> bool:
    last = next(
        (event["action"] for event in reversed(trace) if event["action"] in (*CHANGES, "oom")), ""
    )
    return bool(last == "oom")


# -- layout ----------------------------------------------------------------------------------------
# The layout of ``torch.cuda.memory._snapshot()``: whatever is read of a snapshot later is checked
# here, once, so that no table and no chart meets a value that torch never writes.


ADDRESSES: Final = 2**64
"""Addresses and sizes are below it: torch keeps them in 64 bits."""
CHANGES = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
)
"""Events that change what is held."""

Natural = Annotated[int, msgspec.Meta(ge=0)]
Frames = Annotated[Any, "a list of FrameLayout or None: checked once for each list"]


class FrameLayout(msgspec.Struct):
    """One frame of a stack."""

    filename: str
    line: int
    name: str


class EventLayout(msgspec.Struct):
    """One event of a device's history; sizes in bytes, times in us of the system's clock."""

    action: str
    addr: Natural | msgspec.UnsetType = msgspec.UNSET
    size: Natural = 0
    stream: int = 0
    time_us: Natural = 0
    device_free: int = 0
    frames: Frames = None


class BlockLayout(msgspec.Struct):
    """One block of a segment, in bytes."""

    size: Natural
    state: str
    address: Natural = 0
    requested_size: Natural = 0
    frames: Frames = None


class SegmentLayout(msgspec.Struct):
    """One segment, in bytes."""

    total_size: Natural
    blocks: list[BlockLayout]
    address: Natural = 0
    device: Natural = 0
    stream: int = 0
    segment_type: str = ""
    is_expandable: bool = False
    frames: Frames = None


class SettingsLayout(msgspec.Struct, rename={"alloc_conf": "PYTORCH_CUDA_ALLOC_CONF"}):
    """The allocator's settings; -1 stands for none."""

    alloc_conf: str | None = None
    max_split_size: int = -1
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False
    roundup_power2_divisions: dict[str, int] = {}
    release_lock_on_cudamalloc: bool = False


class SnapshotLayout(msgspec.Struct):
    """The whole of it."""

    segments: list[SegmentLayout]
    device_traces: list[list[EventLayout]] = []
    allocator_settings: SettingsLayout | None = None


def check(form: Any) -> None:
    """Pass what torch writes.

    Raises :class:`ValueError` (:class:`msgspec.ValidationError` is one), which names the place, for
    anything else.
    """
    read = convert(form, SnapshotLayout)
    stacks = _Stacks()
    for segment in read.segments:
        _bounded("segments", segment.address, segment.total_size)
        stacks.check(segment.frames)
        for block in segment.blocks:
            _bounded("blocks", block.address, block.size, block.requested_size)
            stacks.check(block.frames)
    for event in itertools.chain.from_iterable(read.device_traces):
        address = event.addr
        if isinstance(address, msgspec.UnsetType):
            if event.action in CHANGES:
                raise ValueError(f"device_traces: an event {event.action} without an address")
            address = 0
        _bounded("device_traces", address, event.size, event.time_us)
        stacks.check(event.frames)


def _bounded(where: str, *values: int) -> None:
    if max(values) >= ADDRESSES:
        raise ValueError(f"{where}: a number of more than 64 bits")


class _Stacks:
    """Events share lists of frames, and lists share frames: each list is looked at once."""

    def __init__(self) -> None:
        self._seen: dict[int, Sequence[Any] | None] = {id(None): None}

    def check(self, frames: Any) -> None:
        if id(frames) not in self._seen:
            self._seen[id(frames)] = frames  # held: another list could get its address
            for frame in convert(frames, list[FrameLayout]):
                if not 0 <= frame.line < ADDRESSES:
                    raise ValueError("frames: a line of more than 64 bits")


# -- unpickle --------------------------------------------------------------------------------------
# Reads a pickle of plain containers, and nothing else: no class, no function, no code of the
# writer's is ever looked up.


SIZE_LIMIT = 2**30
"""Bytes of an unpacked pickle at most. Snapshots of long histories are hundreds of MB."""
MEMORY_AT_LEAST, MEMORY_PER_BYTE, MEMORY_LIMIT = 2**29, 16, 2**32
"""Bytes that reading may take: real snapshots take ten times their size, a hostile one all."""
RATIO, UNPACKED_AT_LEAST = 200, 64 << 20
"""Bytes per packed byte of a gzipped file at most, and of a small one: real ones have 20."""
TUPLES, DEEP = (b"\x85", b"\x86", b"\x87", b"t"), 5_000
"""Opcodes that put what is on the stack into a tuple, and how many of them may be inside each other
without harm: hashing takes some 100 bytes of stack a level."""
GZIP_MAGIC = b"\x1f\x8b"


class RefusedPickle(Exception):
    """The file is not a pickle of plain containers, or too large; the message is one sentence."""


class _PlainUnpickler(pickle.Unpickler):
    """Admits what pickle builds without a lookup: containers, text, numbers, bool, None."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise RefusedPickle(f"it asks for {module}.{name}: only plain containers are read")

    def persistent_load(self, pid: object) -> NoReturn:
        raise RefusedPickle("it refers to objects outside the file: only plain containers are read")


def load_plain(path: Path, limit: int = SIZE_LIMIT) -> Any:
    """The plain data in a pickle file, which may be gzipped. Raises :class:`RefusedPickle`."""
    try:
        content = _unpacked(path, limit)
        more = min(MEMORY_LIMIT, MEMORY_AT_LEAST + MEMORY_PER_BYTE * len(content))
        _rehearse(content, more)
        with memory_capped(more), uncollected():  # nothing in it can be garbage yet
            return _PlainUnpickler(io.BytesIO(content)).load()
    except RefusedPickle as refused:
        raise RefusedPickle(f"{path.name} was not read: {refused}") from None
    except Exception as error:  # a hostile stream may raise almost anything
        raise RefusedPickle(f"{path.name} is no readable pickle: {type(error).__name__}") from None


def _rehearse(content: bytes, more: int) -> None:
    """Read it once in a process that may die of it: a tuple 200,000 deep as a key overflows the
    stack of whoever hashes it.

    Only where it has tuples enough; opcodes are counted as bytes, so long texts are rehearsed too.
    """
    if sum(map(content.count, TUPLES)) < DEEP:
        return

    def read() -> None:
        faulthandler.disable()
        with uncollected():
            _PlainUnpickler(io.BytesIO(content)).load()

    try:
        isolated(read, (RefusedPickle,), seconds=seconds_for(len(content)), memory=more)
    except ReaderDied as problem:
        raise RefusedPickle(str(problem)) from None


def _unpacked(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
    if packed:
        limit = min(limit, max(UNPACKED_AT_LEAST, RATIO * path.stat().st_size))
    with gzip.open(path) if packed else path.open("rb") as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise RefusedPickle(f"it is larger than {limit} bytes")
    return content


@contextlib.contextmanager
def memory_capped(more: int) -> Iterator[None]:
    """The process gets ``more`` bytes at most: ten bytes of a file may ask for a table of 64 GB."""
    try:
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        cap = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + more
        resource.setrlimit(
            resource.RLIMIT_AS, (cap if soft == resource.RLIM_INFINITY else min(soft, cap), hard)
        )
    except (ImportError, OSError, ValueError):
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
