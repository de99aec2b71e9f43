"""The device's memory and its books: what is left, what was taken and given back, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from auditor.allocator.blocks import Frames
from auditor.allocator.settings import ROUND_LARGE
from auditor.allocator.stats import DeviceStats

FIRST_ADDRESS = 0x7F0000000000
"""Where CUDA's addresses begin on Linux, more or less; only their order matters."""


class Entry(NamedTuple):
    """One event of the history. ``address`` is, for ``oom``, what the device had left."""

    action: str
    address: int
    size: int
    stream: int
    frames: Frames
    time_us: int

    def row(self) -> dict[str, Any]:
        """As torch's snapshots hold it."""
        where = "device_free" if self.action == "oom" else "addr"
        frames: list[Mapping[str, Any]] = list(self.frames)
        return {
            "action": self.action,
            where: self.address,
            "size": self.size,
            "stream": self.stream,
            "time_us": self.time_us,
            "frames": frames,
        }


class Ledger:
    """Memory of one device. ``outside`` bytes of it are taken by others, as by the CUDA context."""

    def __init__(self, total: int, outside: int, history_limit: int | None) -> None:
        self.total, self.outside, self.reserved = total, outside, 0
        self.stats = DeviceStats()
        self.history: deque[Entry] = deque(maxlen=history_limit)
        self._next_address = FIRST_ADDRESS

    @property
    def free(self) -> int:
        """Bytes that the device could still give."""
        return max(0, self.total - self.outside - self.reserved)

    def address_range(self, size: int) -> int:
        """An unused range of addresses, after all others: CUDA, too, mostly goes upwards."""
        address = self._next_address
        self._next_address += -(-size // ROUND_LARGE) * ROUND_LARGE
        return address

    def adopt(self, address: int, size: int, *, small: bool) -> None:
        """Counts a segment that was there before the history began."""
        self._next_address = max(
            self._next_address, -(-(address + size) // ROUND_LARGE) * ROUND_LARGE
        )
        self.reserved += size
        self.stats.segment.add(1, small=small)
        self.stats.reserved_bytes.add(size, small=small)

    def take(self, entry: Entry, *, small: bool) -> None:
        """Memory came from the device: ``segment_alloc`` or ``segment_map``. The caller has looked
        that there was enough.
        """
        self.reserved += entry.size
        self.stats.num_device_alloc += 1
        self.stats.reserved_bytes.add(entry.size, small=small)
        self.history.append(entry)

    def give_back(self, entry: Entry, *, small: bool) -> None:
        """Memory went back to the device: ``segment_free`` or ``segment_unmap``."""
        self.reserved -= entry.size
        self.stats.num_device_free += 1
        self.stats.reserved_bytes.take(entry.size, small=small)
        self.history.append(entry)
