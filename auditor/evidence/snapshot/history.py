"""Memory over time on each device, from a snapshot's history: back from the state at its end."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from typing import ClassVar

from auditor import amounts
from auditor.allocator import History
from auditor.allocator.replay import GAINS, LOSSES, blocks_of
from auditor.evidence.snapshot.file import Event, SnapshotData, snapshot_of
from auditor.evidence.table import Evidence, Table
from auditor.rule import NotLooked


@dataclass(frozen=True)
class Course:
    """One device. The columns hold bytes after each event; ``start_*`` before the first.

    ``allocated`` does not count blocks whose free is pending. Blocks that were freed again count
    with the size that their request is rounded to: an unsplit rest (at most 1 MiB of a block) is
    not in the history.
    """

    device: int
    reserved: Sequence[int]
    allocated: Sequence[int]
    time_us: Sequence[int]
    """Empty if torch did not write times (before 2.3)."""
    start_reserved: int
    start_allocated: int
    retries: int
    ooms: Sequence[int]
    """Events at which a request failed."""
    untrusted: str
    """Why a replay of this history would say nothing; empty if it can."""
    history: History = field(repr=False, compare=False)
    """The history as a program for the simulated allocator."""

    @cached_property
    def peak(self) -> int:
        """The event after which tensors held most."""
        return max(range(len(self.allocated)), key=self.allocated.__getitem__)

    @property
    def peak_allocated(self) -> int:
        """What they held then, or before the first event if that was more."""
        return max(self.start_allocated, self.allocated[self.peak])

    @cached_property
    def peak_reserved(self) -> int:
        """The most that the allocator held from the device, at any time."""
        highest = max(self.reserved)
        return max(self.start_reserved, highest)

    @property
    def starts_late(self) -> bool:
        """Whether memory was in use before the first event."""
        return self.start_allocated > 0

    @cached_property
    def reserved_at_peak(self) -> int:
        """The most that the allocator held from the device from the peak on."""
        return max(self.reserved[self.peak :])

    @property
    def unneeded_bytes(self) -> int:
        """Reserved bytes that no tensor can have needed: at the peak, and before the history."""
        return max(
            0,
            self.reserved_at_peak
            - max(self.peak_allocated, self.start_reserved if self.starts_late else 0),
        )

    @property
    def unneeded_share(self) -> float:
        """Unneeded bytes as a share of the reserved bytes."""
        return self.unneeded_bytes / self.reserved_at_peak if self.reserved_at_peak else 0.0

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        return (
            ("peak allocated", amounts.size(self.peak_allocated)),
            ("reserved then", amounts.size(self.reserved_at_peak)),
            ("allocator retries", str(self.retries)),
            ("out of memory", str(len(self.ooms))),
            ("obtained again, second half", amounts.size(self.late_churn)),
        )

    @property
    def late_churn(self) -> int:
        """Bytes given back to the device and obtained again, in the history's second half."""
        first, total, freed = max(1, len(self.reserved) // 2), 0, 0
        for before, after in pairwise(self.reserved[first - 1 :]):
            if after == before:
                continue
            change = after - before
            again = min(freed, max(change, 0))
            freed, total = freed - again + max(-change, 0), total + again
        return total


@dataclass(frozen=True)
class Allocations(Table):
    """The course of memory on each device that has a history, that with most memory first."""

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    devices: tuple[Course, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> Allocations:
        """From the recording's snapshot. Raises :class:`NotLooked` without a history."""
        data = snapshot_of(evidence)
        courses = [_course(data, device) for device in data.devices if data.trace(device)]
        if not courses:
            raise NotLooked(
                "the snapshot has no allocation history "
                "(torch.cuda.memory._record_memory_history() was not on)"
            )
        return cls(tuple(sorted(courses, key=lambda course: -course.peak_reserved)))


def peak_allocated(evidence: Evidence) -> int | None:
    """Peak of the device with most memory, of a lone snapshot; None without a history."""
    if evidence.bare != "snapshot":
        return None
    try:
        return max(course.peak_allocated for course in evidence.get(Allocations).devices)
    except NotLooked:
        return None


def _course(data: SnapshotData, device: int) -> Course:
    trace, history = data.trace(device), History.from_snapshot(data.as_torch(), device)
    reserved, allocated = _backwards(trace, data.of(device), history)
    timed = all("time_us" in event for event in trace)
    return Course(
        device=device,
        reserved=reserved[1:],
        allocated=allocated[1:],
        time_us=array("q", (int(event["time_us"]) for event in trace)) if timed else (),
        start_reserved=reserved[0],
        start_allocated=allocated[0],
        retries=history.recorded.retries,
        ooms=tuple(index for index, event in enumerate(trace) if event["action"] == "oom"),
        untrusted="its history does not say why cached memory was returned to the device"
        if history.unknown_flushes
        else "",
        history=history,
    )


def _backwards(
    trace: Sequence[Event], segments: Sequence[Event], history: History
) -> tuple[array[int], array[int]]:
    """Reserved and allocated before each event and after the last."""
    # a program asks for the same sizes again and again
    round_size = cache(history.settings.round_size)
    active, allocated = live_at_end(segments), live_at_end(segments, pending=False)
    reserved_now = sum(int(segment["total_size"]) for segment in segments)
    allocated_now = sum(allocated.values())
    columns = array("q", [reserved_now]), array("q", [allocated_now])
    for event in reversed(trace):
        action, address, size = event["action"], event.get("addr", 0), int(event["size"])
        if action in GAINS:
            reserved_now -= size
        elif action in LOSSES:
            reserved_now += size
        elif action == "alloc":
            rounded = round_size(size)
            allocated_now -= allocated.pop(address, rounded)
            active.pop(address, None)
        elif action == "free_completed":
            active.setdefault(address, round_size(size))
        elif action == "free_requested":
            allocated_now += allocated.setdefault(address, active.get(address, round_size(size)))
        columns[0].append(reserved_now)
        columns[1].append(allocated_now)
    for column in columns:
        column.reverse()
    return columns


def live_at_end(segments: Sequence[Event], *, pending: bool = True) -> dict[int, int]:
    """Sizes of the live blocks in a snapshot's segments, by address."""
    return {
        address: int(block["size"])
        for address, block in blocks_of(segments)
        if block["state"] == "active_allocated" or (pending and block["state"] != "inactive")
    }
