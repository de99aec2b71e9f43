"""The layout of ``torch.cuda.memory._snapshot()``: whatever is read of a snapshot later is checked
here, once, so that no table and no chart meets a value that torch never writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import msgspec

from auditor.typed_reading import convert

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


class OlderLayout(msgspec.Struct):
    """What torch before 2.1 wrote of who took a block: ``history`` of it."""

    frames: Frames = None


class BlockLayout(msgspec.Struct):
    """One block of a segment, in bytes."""

    size: Natural
    state: str
    address: Natural = 0
    requested_size: Natural = 0
    frames: Frames = None
    history: list[OlderLayout] | None = None


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
            for each in block.history or ():
                stacks.check(each.frames)
    for trace in read.device_traces:
        _check_trace(trace, stacks)


def _check_trace(trace: Iterable[EventLayout], stacks: _Stacks) -> None:
    for event in trace:
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
    """Events of one place share their list of frames, and lists share their frames: each list is
    looked at once.
    """

    def __init__(self) -> None:
        self._seen: dict[int, Sequence[Any] | None] = {id(None): None}

    def check(self, frames: Any) -> None:
        if id(frames) not in self._seen:
            self._seen[id(frames)] = frames  # held: another list could get its address
            for frame in convert(frames, list[FrameLayout]):
                if not 0 <= frame.line < ADDRESSES:
                    raise ValueError("frames: a line of more than 64 bits")
