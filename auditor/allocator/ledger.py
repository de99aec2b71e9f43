"""The device's memory and its books: what is free, what was allocated and returned, and when."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from auditor.allocator.blocks import Frames
from auditor.allocator.settings import ROUND_LARGE

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
        return {
            "action": self.action,
            where: self.address,
            "size": self.size,
            "stream": self.stream,
            "time_us": self.time_us,
            "frames": listed(self.frames),
        }


def listed(frames: Frames) -> list[Mapping[str, Any]]:
    """A stack as snapshots hold it. A list stays what it is: events of one stack share it, as in
    torch's own, so that it is written, read and checked once.
    """
    return frames if isinstance(frames, list) else list(frames)


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
        """Memory came from the device (``segment_alloc``, ``segment_map``), as the caller saw."""
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


# -- stats -----------------------------------------------------------------------------------------
# Counts what the allocator holds, under the keys of ``torch.cuda.memory_stats``.


EVENTS = (
    "num_alloc_retries",
    "num_ooms",
    "num_sync_all_streams",
    "num_device_alloc",
    "num_device_free",
)
"""Keys of ``torch.cuda.memory_stats`` that count what happened."""


class Stat:
    """One quantity: now, its highest since the last reset, and all that was added and taken."""

    __slots__ = ("allocated", "current", "peak")
    KINDS = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = 0

    @property
    def freed(self) -> int:
        """All that was ever taken."""
        return self.allocated - self.current

    def add(self, amount: int) -> None:
        """Raises it."""
        self.allocated += amount
        self.current += amount
        if self.current > self.peak:  # noqa: PLR1730 - a call of max() takes three times as long, and a replay makes millions
            self.peak = self.current

    def take(self, amount: int) -> None:
        """Lowers it."""
        self.current -= amount


class PoolStat:
    """A quantity of the small pool, of the large pool, and of both."""

    __slots__ = ("every", "large", "small")

    def __init__(self) -> None:
        self.every, self.small, self.large = Stat(), Stat(), Stat()

    def add(self, amount: int, *, small: bool) -> None:
        """Raises it for the pool and for both."""
        self.every.add(amount)
        (self.small if small else self.large).add(amount)

    def take(self, amount: int, *, small: bool) -> None:
        """Lowers it for the pool and for both."""
        self.every.current -= amount
        (self.small if small else self.large).current -= amount

    def change(self, amount: int, *, small: bool) -> None:
        """Raises or lowers it by the sign of ``amount``."""
        if amount > 0:
            self.add(amount, small=small)
        elif amount < 0:
            self.take(-amount, small=small)


class DeviceStats:
    """All quantities of one device."""

    def __init__(self) -> None:
        self.allocation, self.segment, self.active = PoolStat(), PoolStat(), PoolStat()
        self.inactive_split, self.inactive_split_bytes = PoolStat(), PoolStat()
        self.allocated_bytes, self.reserved_bytes = PoolStat(), PoolStat()
        self.active_bytes, self.requested_bytes = PoolStat(), PoolStat()
        self.oversize_allocations, self.oversize_segments = Stat(), Stat()
        self.num_alloc_retries = self.num_ooms = self.num_sync_all_streams = 0
        self.num_device_alloc = self.num_device_free = 0

    def reset_peak(self) -> None:
        """Sets each peak to the present value."""
        for _, stat in self._each():
            stat.peak = stat.current

    def flat(self) -> dict[str, int]:
        """As ``torch.cuda.memory_stats``: ``allocated_bytes.all.peak`` ..., sorted."""
        found = {
            f"{name}.{kind}": getattr(stat, kind)
            for name, stat in self._each()
            for kind in Stat.KINDS
        }
        found.update({name: getattr(self, name) for name in EVENTS})
        return dict(sorted(found.items()))

    def _each(self) -> Iterator[tuple[str, Stat]]:
        for name, stat in vars(self).items():
            if isinstance(stat, PoolStat):
                yield f"{name}.all", stat.every
                yield f"{name}.small_pool", stat.small
                yield f"{name}.large_pool", stat.large
            elif isinstance(stat, Stat):
                yield name, stat
