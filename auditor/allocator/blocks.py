"""Blocks of device memory, chains in which they tile a segment, and the pools of free ones."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Frames = Sequence[Mapping[str, Any]]
"""A stack, innermost first, as in snapshots: ``{"filename": ..., "line": ..., "name": ...}``."""

State = Literal["inactive", "active_allocated", "active_pending_free"]


@dataclass(frozen=True)
class ObjectSearch:
    """The address space of an expandable segment: pages of device memory are mapped into it."""

    address: int
    size: int
    page: int

    def pages(self, start: int, end: int) -> tuple[int, int]:
        """The range widened to whole pages."""
        first, last = (start - self.address) // self.page, -(-(end - self.address) // self.page)
        return self.address + first * self.page, self.address + last * self.page

    def whole_pages(self, start: int, end: int) -> tuple[int, int]:
        """The whole pages within the range; empty if the first is not below the second."""
        first, last = -(-(start - self.address) // self.page), (end - self.address) // self.page
        return self.address + first * self.page, self.address + last * self.page


class Block:
    """A stretch of memory in a segment, linked with its neighbours; not ``mapped``: addresses."""

    __slots__ = (
        "address", "frames", "mapped", "next", "pool", "previous", "reach", "requested", "segment_frames",
        "size", "state", "stream",
    )  # fmt: skip

    def __init__(
        self, pool: Pool, stream: int, address: int, size: int, reach: ObjectSearch | None = None
    ) -> None:
        self.pool, self.stream, self.reach = pool, stream, reach
        self.address, self.size = address, size
        self.state: State = "inactive"
        self.requested = 0
        self.mapped = True
        self.previous: Block | None = None
        self.next: Block | None = None
        self.frames: Frames = ()
        self.segment_frames: Frames = ()

    @property
    def end(self) -> int:
        """The address after its last byte."""
        return self.address + self.size

    @property
    def is_free(self) -> bool:
        """Neither used nor waiting for a stream."""
        return self.state == "inactive"

    @property
    def is_split(self) -> bool:
        """Whether it is only a part of its segment."""
        return self.previous is not None or self.next is not None

    def cut_before(self, size: int) -> Block:
        """Splits off its first ``size`` bytes as a block, and gives that. The rest stays."""
        first = Block(self.pool, self.stream, self.address, size, self.reach)
        first.mapped = self.mapped
        first.previous, first.next = self.previous, self
        if first.previous is not None:
            first.previous.next = first
        first.segment_frames, self.segment_frames = self.segment_frames, ()
        self.previous = first
        self.address += size
        self.size -= size
        return first

    def absorb(self, other: Block) -> None:
        """Takes over a neighbour's bytes and place in the chain."""
        if other is self.previous:
            self.address = other.address
            self.previous = other.previous
            self.segment_frames = other.segment_frames
            if self.previous is not None:
                self.previous.next = self
        else:
            self.next = other.next
            if self.next is not None:
                self.next.previous = self
        self.size += other.size


class Pool:
    """The free blocks of the small or the large pool, for each stream those of equal size by
    address (``BlockPool``).

    torch breaks that tie by the segment's age, then by address, in 2.14.1
    (``BlockComparatorSizeCounterAddress``, pytorch/pytorch#183591); before, by address alone
    (``BlockComparatorSize``), so that what the driver hands out decides. Here later segments have
    higher addresses (:meth:`Ledger.address_range`), and both are one order; only segments that were
    adopted from a recording stand in the order of its addresses.

    A list kept sorted by bisection: inserting moves pointers in one block of memory, which takes 10
    us for 50,000 of them.
    """

    def __init__(self, *, small: bool) -> None:
        self.small = small
        self._free: dict[int, list[tuple[int, int, Block]]] = {}
        self._unmapped: dict[int, list[tuple[int, Block]]] = {}

    def add(self, block: Block) -> None:
        """Makes a block available to its stream."""
        bisect.insort(self._free.setdefault(block.stream, []), (block.size, block.address, block))

    def remove(self, block: Block) -> None:
        """Takes a block out, before its size or address changes."""
        free = self._free[block.stream]
        del free[bisect.bisect_left(free, (block.size, block.address))]

    def best_fit(self, stream: int, size: int) -> Iterator[Block]:
        """Free blocks of at least that size, the smallest first."""
        free = self._free.get(stream, [])
        for place in range(bisect.bisect_left(free, (size, 0)), len(free)):
            yield free[place][2]

    def largest(self, stream: int) -> Block | None:
        """The largest free block of a stream."""
        free = self._free.get(stream)
        return free[-1][2] if free else None

    def free_blocks(self) -> list[Block]:
        """All of them, by stream, size and address."""
        return [block for stream in sorted(self._free) for _, _, block in self._free[stream]]

    def add_unmapped(self, block: Block) -> None:
        """Keeps a stretch of address space without memory."""
        bisect.insort(self._unmapped.setdefault(block.stream, []), (block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        """Forgets such a stretch, before its address changes."""
        unmapped = self._unmapped[block.stream]
        del unmapped[bisect.bisect_left(unmapped, (block.address,))]

    def unmapped(self, stream: int) -> list[Block]:
        """Address space without memory, by address."""
        return [block for _, block in self._unmapped.get(stream, [])]

    def merge(self, block: Block, neighbour: Block | None) -> int:
        """Joins a neighbour that is as free (or unmapped); bytes gained, 0 if it cannot be."""
        if neighbour is None or not neighbour.is_free or neighbour.mapped != block.mapped:
            return 0
        if neighbour.mapped:
            self.remove(neighbour)
        else:
            self.remove_unmapped(neighbour)
        block.absorb(neighbour)
        return neighbour.size


class Request(NamedTuple):
    """One call of ``malloc``: ``size`` is what ``nbytes`` was rounded to."""

    nbytes: int
    size: int
    pool: Pool
    stream: int
    frames: Frames
    now_us: int
