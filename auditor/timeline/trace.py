"""What was read from one trace file: columns of numbers, names as codes, and what had to be left
out.

Times are int64 nanoseconds on the trace's own clock; ``end`` is exclusive. Names, threads, shapes and types are codes into lists of
:class:`Trace`; -1 means "not given".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Small = NDArray[np.int8]
Flags = NDArray[np.bool_]

KERNEL, MEMCPY, MEMSET = 0, 1, 2
"""Values of :attr:`Work.kind`."""


@dataclass(frozen=True)
class Spans:
    """What began and ended, a row each."""

    start: Ints
    end: Ints

    def of(self, times: Ints) -> Ints:
        """Of rows in order of time the one in which each time lies (the last one begun, its end
        included), -1 outside.
        """
        if not len(self.start):
            return np.full(len(times), -1, np.int64)
        place = np.searchsorted(self.start, times, side="right") - 1
        return np.where((place >= 0) & (times <= self.end[np.maximum(place, 0)]), place, -1)


@dataclass(frozen=True)
class Operators(Spans):
    """Spans on the host that torch or the user named, as ``ProfilerStep#7``. In file order."""

    name: Codes
    thread: Codes
    annotation: Flags
    forward_thread: Codes
    """Kineto's small number of the forward's thread; positive on spans of a backward pass."""
    shapes: Codes
    types: Codes


@dataclass(frozen=True)
class Calls(Spans):
    """Calls of the CUDA/HIP runtime or driver on the host."""

    name: Codes
    thread: Codes
    correlation: Ints


@dataclass(frozen=True)
class Work(Spans):
    """What ran on devices: kernels, copies, memsets (:data:`KERNEL` ...). ``bytes`` of copies."""

    name: Codes
    kind: Small
    device: Codes
    stream: Ints
    correlation: Ints
    bytes: Ints


@dataclass(frozen=True)
class Frames(Spans):
    """Python functions (``with_stack=True``). Names end in the line of ``def``, not the call's."""

    name: Codes
    thread: Codes


@dataclass(frozen=True)
class MemoryEvents:
    """``[memory]`` instants: the totals after each; -1 where an old torch wrote none."""

    start: Ints
    name: Codes
    allocated: Ints
    reserved: Ints
    device_type: Small
    """0 is the host, 1 is CUDA (and HIP under its CUDA name)."""
    device: Codes


@dataclass(frozen=True)
class Syncs(Spans):
    """``cuda_sync`` events: CUPTI's own record of what a wait waited for."""

    stream: Ints
    correlation: Ints


@dataclass(frozen=True)
class Others(Spans):
    """Spans of every other category: the profiler's overhead, its window, unknown accelerators."""

    category: Codes


TABLES: dict[str, type[Any]] = {
    "operators": Operators,
    "calls": Calls,
    "work": Work,
    "frames": Frames,
    "memory": MemoryEvents,
    "syncs": Syncs,
    "others": Others,
}

DTYPES: dict[str, Any] = {"Ints": np.int64, "Codes": np.int32, "Small": np.int8, "Flags": np.bool_}


def schema(table: type[Any]) -> tuple[tuple[str, Any], ...]:
    """(column, dtype) of a table, in order."""
    return tuple((column.name, DTYPES[str(column.type)]) for column in fields(table))


class Device(Struct, frozen=True):
    """One entry of ``deviceProperties``. Capability (0, 0), memory 0 if not given."""

    index: int = field(default=-1, name="id")
    name: str = ""
    major: int = field(default=0, name="computeMajor")
    minor: int = field(default=0, name="computeMinor")
    memory_bytes: int = field(default=0, name="totalGlobalMem")

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability, as (8, 0)."""
        return self.major, self.minor


NULL_DEVICE = str(0x6E756C00)


@dataclass(frozen=True)
class Info:
    """What the file says about itself outside its events."""

    devices: tuple[Device, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    versions: tuple[tuple[str, str], ...] = ()
    """(key, value) of CUDA/HIP/CUPTI/NCCL versions."""
    host: str = ""

    @property
    def null_device(self) -> bool:
        """Whether no GPU ran: kernels, copies and fills have a placeholder's length, and only their
        order and number are true.

        `cupti.c` of the null device gives that mark as CUPTI's version (nulldevice/README.md).
        """
        return ("cupti_version", NULL_DEVICE) in self.versions


@dataclass(frozen=True)
class Trace:
    """One trace file as columns. See the module's docstring for units."""

    events: int
    """Events in the file, of every kind, broken ones left out."""
    names: Sequence[str]
    texts: Sequence[bytes]
    """JSON text of shapes and types, addressed by the codes of :class:`Operators`."""
    operators: Operators
    calls: Calls
    work: Work
    frames: Frames
    memory: MemoryEvents
    syncs: Syncs
    others: Others
    info: Info
    warnings: tuple[str, ...] = ()
    """One sentence each, for people: what could not be read, and what that means."""

    def span_ns(self) -> tuple[int, int]:
        """First start and last end over host and device spans; (0, 0) for an empty trace."""
        tables = (self.operators, self.calls, self.work, self.frames)
        starts = [int(table.start.min()) for table in tables if len(table.start)]
        ends = [int(table.end.max()) for table in tables if len(table.start)]
        return (min(starts), max(ends)) if starts else (0, 0)
