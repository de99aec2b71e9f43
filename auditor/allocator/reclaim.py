"""Gives cached memory back to the device: all of it, or just enough oversize blocks."""

from __future__ import annotations

from auditor.allocator.blocks import Block, Frames, Pool, Request
from auditor.allocator.expandable import ExpandableSegments
from auditor.allocator.ledger import Entry, Ledger
from auditor.allocator.settings import AllocatorSettings


class Reclaim:
    """The two ways in which torch gives memory back. Only whole segments and pages can be."""

    def __init__(
        self, ledger: Ledger, settings: AllocatorSettings, expandable: ExpandableSegments
    ) -> None:
        self._ledger, self._settings, self._expandable = ledger, settings, expandable

    def cached(self, pool: Pool, frames: Frames, now_us: int) -> None:
        """All that is free in a pool (``release_blocks``)."""
        free = pool.free_blocks()
        for block in free:
            if block.reach is None and not block.is_split:
                self._release(block, frames, now_us)
        for block in free:
            if block.reach is not None:
                self._expandable.shrink(block, frames, now_us)

    def oversize(self, request: Request) -> bool:
        """Just enough oversize blocks for the request (``release_available_cached_blocks``); True
        if that was enough.

        Oversize blocks are whole segments, but not those that were split before the setting was
        there (:meth:`CachingAllocator.adopt`).
        """
        if self._settings.max_split_size is None or self._settings.expandable_segments:
            return False  # expandable segments have no whole blocks to give back
        pool, wanted = request.pool, max(request.size, self._settings.max_split_size)
        single = next(
            (block for block in pool.best_fit(request.stream, wanted) if not block.is_split), None
        )
        if single is not None:
            self._release(single, request.frames, request.now_us)
            return True
        released = 0
        while released < wanted:
            block = pool.largest(request.stream)
            if block is None or block.is_split or not self._settings.is_oversize(block.size):
                return False
            released += block.size
            self._release(block, request.frames, request.now_us)
        return True

    def _release(self, block: Block, frames: Frames, now_us: int) -> None:
        """One whole free segment (``release_block``)."""
        block.pool.remove(block)
        entry = Entry(
            "segment_free",
            block.address,
            block.size,
            block.stream,
            frames or block.segment_frames,
            now_us,
        )
        self._ledger.give_back(entry, small=block.pool.small)
        self._ledger.stats.segment.take(1, small=block.pool.small)
        if self._settings.is_oversize(block.size):
            self._ledger.stats.oversize_segments.take(1)
