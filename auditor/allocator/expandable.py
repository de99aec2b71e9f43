"""Expandable segments: address space as large as the device, into which memory is mapped page by
page where it is needed.
"""

from __future__ import annotations

from auditor.allocator.blocks import Block, Frames, ObjectSearch, Pool
from auditor.allocator.ledger import Entry, Ledger
from auditor.allocator.settings import AllocatorSettings


def room(block: Block) -> int:
    """Bytes a free block has, or could be grown to (``expandable_size``, get_free_block)."""
    following = block.next
    return block.size + (following.size if following is not None and not following.mapped else 0)


class ExpandableSegments:
    """Maps and unmaps. Pages are of 2 MiB in the small pool, of ``large_segment_size`` (20 MiB) in
    the large one.
    """

    def __init__(self, ledger: Ledger, settings: AllocatorSettings) -> None:
        self._ledger, self._settings = ledger, settings

    def grow(self, pool: Pool, stream: int, size: int, frames: Frames, now_us: int) -> Block | None:
        """A free block of at least ``size`` bytes, taken out of the pool; None where the device has
        not enough.

        What was mapped before the device was full stays in the pool
        (``try_allocate_expandable_block``).
        """
        candidate = self._candidate(pool, stream, size)
        if not candidate.mapped and not self._map(
            candidate, min(candidate.size, size), frames, now_us
        ):
            return None
        while candidate.size < size:
            following = candidate.next
            assert following is not None  # _candidate() saw enough room
            if not self._map(following, min(size - candidate.size, following.size), frames, now_us):
                return None
            candidate = following
        pool.remove(candidate)
        return candidate

    def shrink(self, block: Block, frames: Frames, now_us: int) -> None:
        """Unmaps the whole pages of a free block; either end stays free (``unmap_block``)."""
        assert block.reach is not None
        start, end = block.reach.whole_pages(block.address, block.end)
        if start >= end:
            return
        pool = block.pool
        pool.remove(block)
        if start > block.address:
            pool.add(block.cut_before(start - block.address))
        if end < block.end:
            rest, block = block, block.cut_before(end - block.address)
            pool.add(rest)
        entry = Entry(
            "segment_unmap", start, block.size, block.stream, frames or block.segment_frames, now_us
        )
        self._ledger.give_back(entry, small=pool.small)
        block.mapped = False
        block.frames = block.segment_frames = ()
        pool.merge(block, block.previous)
        pool.merge(block, block.next)
        if block.is_split:
            pool.add_unmapped(block)  # else the address space is empty, and given up

    def _candidate(self, pool: Pool, stream: int, size: int) -> Block:
        """The lowest place where enough can be mapped, counting a free block before it
        (``find_expandable_block``).
        """
        for block in pool.unmapped(stream):
            start = (
                block.previous if block.previous is not None and block.previous.is_free else block
            )
            if _has_room(start, size):
                return start
        return self._reserve(pool, stream)

    def _reserve(self, pool: Pool, stream: int) -> Block:
        """New address space, 9/8 of the device: pages unmapped at its front may move to its end."""
        page = self._settings.page_size(small=pool.small)
        size = -(-(self._ledger.total * 9 // 8) // page) * page
        address = self._ledger.address_range(size)
        block = Block(pool, stream, address, size, ObjectSearch(address, size, page))
        block.mapped = False
        pool.add_unmapped(block)
        return block

    def _map(self, block: Block, size: int, frames: Frames, now_us: int) -> bool:
        """Backs the front of an unmapped block, joins it with free neighbours (``map_block``)."""
        assert block.reach is not None
        start, end = block.reach.pages(block.address, block.address + size)
        if end - start > self._ledger.free:
            return False
        pool = block.pool
        pool.remove_unmapped(block)
        if end < block.end:
            _split_after(block, end - start)
        block.mapped = True
        self._ledger.take(
            Entry("segment_map", start, end - start, block.stream, frames, now_us), small=pool.small
        )
        pool.merge(block, block.previous)
        pool.merge(block, block.next)
        pool.add(block)
        if block.previous is None or not block.previous.mapped:
            block.segment_frames = block.segment_frames or frames
        return True


def _split_after(block: Block, size: int) -> None:
    """Leaves the block its first ``size`` bytes; the rest becomes an unmapped block after it."""
    rest = Block(block.pool, block.stream, block.address + size, block.size - size, block.reach)
    rest.mapped = False
    rest.previous, rest.next = block, block.next
    if rest.next is not None:
        rest.next.previous = rest
    block.next, block.size = rest, size
    block.pool.add_unmapped(rest)


def _has_room(block: Block | None, size: int) -> bool:
    found = 0
    while found < size and block is not None and block.is_free:
        found += block.size
        block = block.next
    return found >= size
