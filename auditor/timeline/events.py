"""The fields that are read of each kind of event: exact structs for speed, and a tolerant way into the same structs."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import msgspec
from msgspec import Raw, Struct, field

from auditor.timeline.trace import KERNEL, MEMCPY, MEMSET

Id = int | str
EMPTY = Raw(b"")


class OperatorArgs(Struct, gc=False, frozen=True):
    """Arguments of an operator."""

    sequence: int = field(default=-1, name="Sequence number")
    forward_thread: int = field(default=-1, name="Fwd thread id")
    shapes: Raw = field(default=EMPTY, name="Input Dims")
    types: Raw = field(default=EMPTY, name="Input type")
    stack: Raw = field(default=EMPTY, name="Call stack")
    old_shapes: Raw = field(default=EMPTY, name="Input dims")


class Operator(Struct, gc=False, tag_field="cat", tag="cpu_op"):
    """A span of torch's dispatcher. ``dur`` is required, so that a begin without an end takes the tolerant way."""

    name: str
    tid: Id
    ts: float
    dur: float
    pid: Id = -1
    args: OperatorArgs = OperatorArgs()
    annotation: ClassVar[bool] = False


class OldOperator(Operator, tag_field="cat", tag="Operator"):
    """The same as Kineto spelled it in 2021."""


class Annotation(Operator, tag_field="cat", tag="user_annotation"):
    """A span that the user, an optimizer, a loader or the profiler named."""

    annotation: ClassVar[bool] = True


class CallArgs(Struct, gc=False, frozen=True):
    """Arguments of a runtime call."""

    correlation: int = -1


class Call(Struct, gc=False, tag_field="cat", tag="cuda_runtime"):
    """A call of the device's runtime."""

    name: str
    tid: Id
    ts: float
    dur: float
    pid: Id = -1
    args: CallArgs = CallArgs()


class DriverCall(Call, tag_field="cat", tag="cuda_driver"):
    """A call of the device's driver."""


class OldCall(Call, tag_field="cat", tag="Runtime"):
    """A runtime call as Kineto spelled it in 2021."""


class WorkArgs(Struct, gc=False, frozen=True):
    """Arguments of device work."""

    device: Id = -1
    stream: int = -1
    correlation: int = -1
    bytes: int = -1


class Kernel(Struct, gc=False, tag_field="cat", tag="kernel"):
    """A kernel on a device."""

    name: str
    tid: Id
    ts: float
    dur: float
    pid: Id = -1
    args: WorkArgs = WorkArgs()
    kind: ClassVar[int] = KERNEL


class Memcpy(Kernel, tag_field="cat", tag="gpu_memcpy"):
    """A copy on a device."""

    kind: ClassVar[int] = MEMCPY


class Memset(Kernel, tag_field="cat", tag="gpu_memset"):
    """A memset on a device."""

    kind: ClassVar[int] = MEMSET


class OldKernel(Kernel, tag_field="cat", tag="Kernel"):
    """A kernel as Kineto spelled it in 2021."""


class OldMemcpy(Memcpy, tag_field="cat", tag="Memcpy"):
    """A copy as Kineto spelled it in 2021."""


class OldMemset(Memset, tag_field="cat", tag="Memset"):
    """A memset as Kineto spelled it in 2021."""


class Mark(Struct, gc=False, tag_field="cat", tag="gpu_user_annotation"):
    """A user's span as the device saw it."""

    name: str
    tid: Id
    ts: float
    dur: float
    pid: Id = -1


class Frame(Struct, gc=False, tag_field="cat", tag="python_function"):
    """A Python function."""

    name: str
    tid: Id
    ts: float
    dur: float
    pid: Id = -1


class MemoryArgs(Struct, gc=False, frozen=True):
    """Arguments of a memory instant."""

    bytes: int = field(name="Bytes")
    allocated: int = field(default=-1, name="Total Allocated")
    reserved: int = field(default=-1, name="Total Reserved")
    device_type: int = field(default=-1, name="Device Type")
    device: int = field(default=-1, name="Device Id")


class Memory(Struct, gc=False, tag_field="cat", tag="cpu_instant_event"):
    """Memory taken or given back."""

    name: str
    tid: Id
    ts: float
    args: MemoryArgs
    pid: Id = -1


class SyncArgs(Struct, gc=False, frozen=True):
    """Arguments of CUPTI's record of a wait."""

    device: Id = -1
    stream: int = -1
    correlation: int = -1


class Sync(Struct, gc=False, tag_field="cat", tag="cuda_sync"):
    """CUPTI's record of a wait."""

    name: str
    tid: Id
    ts: float
    dur: float
    pid: Id = -1
    args: SyncArgs = SyncArgs()


class Flow(Struct, gc=False, tag_field="cat", tag="ac2g"):
    """An arrow from a launch to its work: counted only, the correlation says the same."""

    category: ClassVar[str] = "ac2g"


class BackwardFlow(Flow, tag_field="cat", tag="fwdbwd"):
    """An arrow from a forward operator to its backward node: counted only, the sequence number says the same."""

    category: ClassVar[str] = "fwdbwd"


class OldFlow(Flow, tag_field="cat", tag="async_cpu_to_gpu"):
    """A launch arrow as Kineto spelled it in 2022."""

    category: ClassVar[str] = "async_cpu_to_gpu"


class OldestFlow(Flow, tag_field="cat", tag="async"):
    """A launch arrow as Kineto spelled it in 2021."""

    category: ClassVar[str] = "async"


class Span(Struct, gc=False):
    """A span of any other category (built by the tolerant way only)."""

    name: str
    tid: Id
    ts: float
    dur: float
    pid: Id
    category: str


EXACT = msgspec.json.Decoder(
    list[
        Operator
        | OldOperator
        | Annotation
        | Call
        | DriverCall
        | OldCall
        | Kernel
        | Memcpy
        | Memset
        | OldKernel
        | OldMemcpy
        | OldMemset
        | Mark
        | Frame
        | Memory
        | Sync
        | Flow
        | BackwardFlow
        | OldFlow
        | OldestFlow
    ]
)


class LooseArgs(Struct, gc=False, frozen=True, forbid_unknown_fields=False):
    """Arguments of any event, of any type, in every spelling seen since 2021."""

    sequence: Any = field(default=None, name="Sequence number")
    forward_thread: Any = field(default=None, name="Fwd thread id")
    shapes: Raw = field(default=EMPTY, name="Input Dims")
    old_shapes: Raw = field(default=EMPTY, name="Input dims")
    types: Raw = field(default=EMPTY, name="Input type")
    stack: Raw = field(default=EMPTY, name="Call stack")
    correlation: Any = None
    device: Any = None
    stream: Any = None
    bytes: Any = None
    memory_bytes: Any = field(default=None, name="Bytes")
    allocated: Any = field(default=None, name="Total Allocated")
    reserved: Any = field(default=None, name="Total Reserved")
    device_type: Any = field(default=None, name="Device Type")
    device_id: Any = field(default=None, name="Device Id")


class Loose(Struct, gc=False):
    """Any event, of any types."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    ts: Any = None
    dur: Any = None
    tid: Any = None
    pid: Any = None
    args: LooseArgs | None = None


TOLERANT = msgspec.json.Decoder(list[Loose])
_LOOSE_ARGS = {entry.encode_name: entry.name for entry in msgspec.structs.fields(LooseArgs)}
_RAW_ARGS = {"shapes", "old_shapes", "types", "stack"}
_LOOSE_FIELDS = ("ph", "cat", "name", "ts", "dur", "tid", "pid")
_NO_ARGS = LooseArgs()


def loose(event: dict[str, Any]) -> Loose:
    """A decoded event as :class:`Loose`."""
    given = event.get("args")
    args = _NO_ARGS
    if isinstance(given, dict):
        known = {_LOOSE_ARGS[key]: value for key, value in given.items() if key in _LOOSE_ARGS}
        args = LooseArgs(**{key: _text_of(value) if key in _RAW_ARGS else value for key, value in known.items()})
    return Loose(**{key: event.get(key) for key in _LOOSE_FIELDS}, args=args)


def _text_of(value: Any) -> Raw:
    try:
        return Raw(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError, OverflowError):
        return EMPTY


_LIMIT = 2**62


def whole(value: Any, default: int = -1) -> int:
    """``value`` as a number that fits a column, or the default. AMD writes some streams and sizes as text."""
    if isinstance(value, str):
        try:
            value = int(value, 0) if len(value) < 32 else default
        except ValueError:
            return default
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) else default
    return value if isinstance(value, int) and -_LIMIT < value < _LIMIT else default


def real(value: Any) -> float:
    """``value`` as a float; NaN (which drops the event) where it is none."""
    if isinstance(value, (int, str)):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return math.nan
    return value if isinstance(value, float) else math.nan


def label(value: Any) -> Id:
    """A process's or thread's name."""
    return value if isinstance(value, (int, str)) else -1


def text(value: Any) -> str:
    """``value`` as a name that can be printed."""
    if not isinstance(value, str):
        return "" if value is None else str(value)[:200]
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
