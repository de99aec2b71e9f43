"""What the null device knows about this process: calls that blocked, functions without an answer,
counts, bytes taken.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from dataclasses import dataclass
from typing import Any

WAITS, MAY_WAIT = 1, 2
COUNTERS = tuple(
    """
    launches library_launches copies bytes_to_device bytes_from_device bytes_on_device fills
    allocations frees graph_launches collectives
    """.split()
)
"""In the order of ``enum null_counter`` (csrc/null.h)."""


class _Record(ctypes.Structure):
    """``struct null_blocking`` of csrc/null.h."""

    _fields_ = (
        ("number", ctypes.c_uint64),
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("stream", ctypes.c_uint64),
        ("thread", ctypes.c_int32),
        ("device", ctypes.c_int16),
        ("how", ctypes.c_int16),
        ("call", ctypes.c_char * 48),
    )


@dataclass(frozen=True)
class Blocking:
    """One call of CUDA that blocks the host, or may."""

    number: int
    call: str
    """``cudaStreamSynchronize``."""
    waits: bool
    """False: documented as "may": pageable memory is staged, memory is pinned."""
    stream: int
    bytes: int
    begin_ns: int
    """On the clock of ``time.monotonic_ns()``."""
    end_ns: int
    thread: int
    """``threading.get_native_id()`` of who called."""
    device: int


@functools.cache
def library() -> Any:
    """The null device in this process, or None where it does not run on one."""
    if sys.platform != "linux":
        return None
    process = ctypes.CDLL(None)
    if not hasattr(process, "nulldevice_present"):
        return None
    process.nulldevice_mark.restype = ctypes.c_uint64
    process.nulldevice_blocking.restype = ctypes.c_size_t
    process.nulldevice_blocking.argtypes = (
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_void_p,
        ctypes.c_size_t,
    )
    process.nulldevice_unanswered.restype = ctypes.c_char_p
    process.nulldevice_unanswered.argtypes = (ctypes.c_size_t,)
    process.nulldevice_counter.restype = ctypes.c_uint64
    process.nulldevice_counter.argtypes = (ctypes.c_uint,)
    process.nulldevice_used.restype = ctypes.c_uint64
    process.nulldevice_used.argtypes = (ctypes.c_int,)
    return process


def running() -> bool:
    """Whether this process runs on the null device."""
    return library() is not None


def mark() -> int:
    """A point in time: the number that the next blocking call will get."""
    return int(library().nulldevice_mark())


def blocking(since: int = 0, until: int | None = None) -> list[Blocking]:
    """The calls that blocked between two marks, oldest first; the device keeps the last 65,536."""
    end = mark() if until is None else until
    room = max(0, min(end - since, 1 << 16))
    records = (_Record * room)()
    copied = library().nulldevice_blocking(
        since, end, ctypes.addressof(records) if room else None, room
    )
    return [
        Blocking(
            number=one.number,
            call=one.call.decode(),
            waits=one.how == WAITS,
            stream=one.stream,
            bytes=one.bytes,
            begin_ns=one.begin,
            end_ns=one.end,
            thread=one.thread,
            device=one.device,
        )
        for one in records[:copied]
    ]


def unanswered() -> list[str]:
    """Functions that were called in this process and that the null device does not answer."""
    found: list[str] = []
    while (name := library().nulldevice_unanswered(len(found))) is not None:
        found.append(name.decode())
    return found


def counters() -> dict[str, int]:
    """How many launches, copies, ... there were in this process so far."""
    return {name: int(library().nulldevice_counter(which)) for which, name in enumerate(COUNTERS)}


def used_bytes(device: int = 0) -> int:
    """Bytes of a device's memory that the driver has handed out: what torch reserved, and what it
    took beside its allocator.
    """
    return int(library().nulldevice_used(device))
