"""What is read of an event of a trace, whatever its kind: msgspec decodes nothing else of it."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from auditor.timeline.trace import KERNEL, MEMCPY, MEMSET

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


def group(event: Event) -> str:
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
    """Whether memory was taken or given back."""
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


def last_number(label: int | str) -> int:
    """7 of a thread that is named ``stream 7``, or by its number."""
    return whole(str(label).rpartition(" ")[2])
