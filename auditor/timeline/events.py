"""The fields that are read of each kind of event, as exact structs: one decoder for nearly every
piece of a trace.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec import Raw, Struct, field

from auditor.timeline.trace import KERNEL, MEMCPY, MEMSET

Id = int | str
EMPTY = Raw(b"")


class Event(Struct, gc=False):
    """What every span has. ``dur`` is required, so that a begin without an end takes the tolerant
    way.
    """

    name: str
    tid: Id
    ts: float
    dur: float
    pid: Id = -1


class OperatorArgs(Struct, gc=False, frozen=True):
    """Arguments of an operator."""

    sequence: int = field(default=-1, name="Sequence number")
    forward_thread: int = field(default=-1, name="Fwd thread id")
    shapes: Raw = field(default=EMPTY, name="Input Dims")
    types: Raw = field(default=EMPTY, name="Input type")
    stack: Raw = field(default=EMPTY, name="Call stack")
    old_shapes: Raw = field(default=EMPTY, name="Input dims")


class Operator(Event, tag_field="cat", tag="cpu_op"):
    """A span of torch's dispatcher."""

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


class Call(Event, tag_field="cat", tag="cuda_runtime"):
    """A call of the device's runtime."""

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


class Kernel(Event, tag_field="cat", tag="kernel"):
    """A kernel on a device."""

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


class Mark(Event, tag_field="cat", tag="gpu_user_annotation"):
    """A user's span as the device saw it."""


class Frame(Event, tag_field="cat", tag="python_function"):
    """A Python function."""


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


class Sync(Event, tag_field="cat", tag="cuda_sync"):
    """CUPTI's record of a wait."""

    args: SyncArgs = SyncArgs()


class Flow(Struct, gc=False, tag_field="cat", tag="ac2g"):
    """An arrow from a launch to its work: counted only, the correlation says the same."""

    category: ClassVar[str] = "ac2g"


class BackwardFlow(Flow, tag_field="cat", tag="fwdbwd"):
    """An arrow from a forward operator to its backward node: counted only, the sequence number says
    the same.
    """

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
