"""A caching allocator that behaves as torch's does on a CUDA device, without device and without
torch.

The order of the steps is that of ``DeviceCachingAllocator::malloc`` and ``free_block`` in
c10/cuda/CUDACachingAllocator.cpp (2.9), and held event by event to what 2.14.1 does
(docs/log/gpu-facts.md, "Memory"); private pools of CUDA graphs are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from auditor.allocator.blocks import Block, Frames, ObjectSearch, Pool, Request
from auditor.allocator.ledger import Entry, Ledger, listed
from auditor.allocator.settings import INTERVALS, SMALL_BUFFER, SMALL_SIZE, AllocatorSettings

DEFAULTS = AllocatorSettings()


class CachingAllocator:
    """Memory of one simulated device of ``total_bytes``, of which ``outside_bytes`` are others'
    (the CUDA context). Times are in us; where none is given the clock's. ``history_limit`` is the number of events kept for :meth:`snapshot`, all by
    default. Not safe for threads.
    """

    def __init__(
        self,
        total_bytes: int,
        *,
        settings: AllocatorSettings = DEFAULTS,
        device: int = 0,
        outside_bytes: int = 0,
        history_limit: int | None = None,
    ) -> None:
        self.settings, self.device = settings, device
        self._ledger = Ledger(total_bytes, outside_bytes, history_limit)
        self._small, self._large = Pool(small=True), Pool(small=False)
        self._expandable = ExpandableSegments(self._ledger, settings)
        self._live: dict[int, Block] = {}
        self._pending: dict[int, Block] = {}

    # -- what a program does

    def malloc(
        self, nbytes: int, stream: int = 0, frames: Frames = (), now_us: int | None = None
    ) -> int:
        """The address of ``nbytes`` on ``stream``; 0 for no bytes. Raises :class:`OutOfMemory`."""
        if nbytes <= 0:
            if nbytes < 0:
                raise ValueError(f"{nbytes} bytes cannot be allocated")
            return 0
        size = self.settings.round_size(nbytes)
        pool = self._small if size <= SMALL_SIZE else self._large
        request = Request(nbytes, size, pool, stream, frames, _clock(now_us))
        block = self._find(request) or self._obtain(request)
        if block is None:
            raise self._out_of_memory(request)
        block = self._carve(block, size)
        self._activate(block, nbytes, frames)
        self._ledger.history.append(
            Entry("alloc", block.address, nbytes, stream, frames, request.now_us)
        )
        return block.address

    def free(
        self, address: int, now_us: int | None = None, frames: Frames = (), *, pending: bool = False
    ) -> None:
        """Gives a block back to the cache: at once, or (``pending``) by :meth:`complete_free`.

        Raises :class:`ValueError` if nothing live is at that address; 0 is freed without effect.
        """
        if not address:
            return
        block = self._live.pop(address, None)
        if block is None:
            raise ValueError(f"no live block is at address {address:#x}")
        stats, small, now = self._ledger.stats, block.pool.small, _clock(now_us)
        stats.allocation.take(1, small=small)
        stats.allocated_bytes.take(block.size, small=small)
        if self.settings.is_oversize(block.size):
            stats.oversize_allocations.take(1)
        frames = frames or block.frames
        self._ledger.history.append(
            Entry("free_requested", address, block.requested, block.stream, frames, now)
        )
        if pending:
            block.state = "active_pending_free"
            self._pending[address] = block
        else:
            self._complete(block, now, frames)

    def complete_free(self, address: int, now_us: int | None = None) -> None:
        """Complete the free that is pending at that address, if any (see :meth:`empty_cache`)."""
        block = self._pending.get(address)
        if block is not None:
            self._complete_pending(block, _clock(now_us))

    def empty_cache(self, now_us: int | None = None, frames: Frames = ()) -> None:
        """Waits for all streams, then gives back what it can: free segments and free pages."""
        now = _clock(now_us)
        self._ledger.stats.num_sync_all_streams += 1
        for block in list(self._pending.values()):
            self._complete_pending(block, now)
        for pool in (self._large, self._small):
            self._release_cached(pool, frames, now)

    # -- what a program asks

    @property
    def device_free(self) -> int:
        """Bytes the device could still give, as in ``torch.cuda.mem_get_info()[0]``."""
        return self._ledger.free

    def resize(self, total_bytes: int) -> int:
        """Set the device's size in bytes; returns the bytes that other processes leave free."""
        self._ledger.total = total_bytes
        return total_bytes - self._ledger.outside

    @property
    def total_bytes(self) -> int:
        """Bytes of the device: the second number of ``torch.cuda.mem_get_info``."""
        return self._ledger.total

    def stats(self) -> dict[str, int]:
        """As ``torch.cuda.memory_stats`` gives them."""
        found = self._ledger.stats.flat()
        found["max_split_size"] = (
            -1 if self.settings.max_split_size is None else self.settings.max_split_size
        )
        return found

    def reset_peak(self) -> None:
        """As ``torch.cuda.reset_peak_memory_stats``."""
        self._ledger.stats.reset_peak()

    def snapshot(self) -> dict[str, Any]:
        """As ``torch.cuda.memory._snapshot`` gives it: segments, history and settings."""
        return snapshot_of(self.blocks(), self._ledger.history, self.settings, self.device)

    def blocks(self) -> Iterator[Block]:
        """All blocks of memory, in no order."""
        yield from self._small.free_blocks()
        yield from self._large.free_blocks()
        yield from self._live.values()
        yield from self._pending.values()

    def adopt(
        self,
        address: int,
        size: int,
        *,
        small: bool,
        live: Iterable[tuple[int, int, int]],
        stream: int = 0,
    ) -> None:
        """Takes over a segment as a recording found it, with its ``live`` blocks as (address, size,
        requested bytes).

        Raises :class:`ValueError` if these lie outside it or over one another.
        """
        pool = self._small if small else self._large
        rest: Block | None = Block(pool, stream, address, size)
        self._ledger.adopt(address, size, small=small)
        found = []
        for start, length, requested in sorted(live):
            if rest is None or start < rest.address or length <= 0 or start + length > rest.end:
                raise ValueError(
                    f"a block of {length} bytes at {start:#x} has no place in its segment"
                )
            if start > rest.address:
                found.append(rest.cut_before(start - rest.address))
            block, rest = (rest, None) if rest.size == length else (rest.cut_before(length), rest)
            self._activate(block, requested, ())
        for free in [*found, *([rest] if rest is not None else [])]:
            pool.add(free)
            self._count_split(int(free.is_split), free.size if free.is_split else 0, pool)

    # -- the steps of an allocation

    def _find(self, request: Request) -> Block | None:
        """The best of the cached blocks, taken out of the pool (``get_free_block``)."""
        pool = request.pool
        fitting = pool.best_fit(request.stream, request.size)
        best = next(fitting, None)
        if best is None:
            return None
        if best.reach is not None:  # one that could grow counts as large as it could become
            for larger in fitting:
                if best.reach is None or room(larger) >= room(best):
                    break
                best = larger
        if not self.settings.fits(best.size, request.size):
            return None
        pool.remove(best)
        return best

    def _obtain(self, request: Request) -> Block | None:
        """Memory from the device, after giving back what is cached where that must be."""
        block = self._grow(request)
        if block is None and self._release_oversize(request):
            block = self._grow(request)
        if block is None:
            self.empty_cache(request.now_us, request.frames)
            self._ledger.stats.num_alloc_retries += 1
            block = self._grow(request)
        return block

    def _grow(self, request: Request) -> Block | None:
        ledger, size = self._ledger, self.settings.segment_size(request.size)
        if self.settings.expandable_segments:
            return self._expandable.grow(
                request.pool, request.stream, request.size, request.frames, request.now_us
            )
        if size > ledger.free:
            return None
        block = Block(request.pool, request.stream, ledger.address_range(size), size)
        block.segment_frames = request.frames
        entry = Entry(
            "segment_alloc", block.address, size, request.stream, request.frames, request.now_us
        )
        ledger.take(entry, small=request.pool.small)
        ledger.stats.segment.add(1, small=request.pool.small)
        if self.settings.is_oversize(size):
            ledger.stats.oversize_segments.add(1)
        return block

    # -- what is given back: only whole segments and pages can be

    def _release_cached(self, pool: Pool, frames: Frames, now_us: int) -> None:
        """All that is free in a pool (``release_blocks``)."""
        free = pool.free_blocks()
        for block in free:
            if block.reach is None and not block.is_split:
                self._release(block, frames, now_us)
        for block in free:
            if block.reach is not None:
                self._expandable.shrink(block, frames, now_us)

    def _release_oversize(self, request: Request) -> bool:
        """Just enough oversize blocks for the request (``release_available_cached_blocks``); True
        if that was enough.

        Oversize blocks are whole segments, but not those that were split before the setting was
        there (:meth:`adopt`).
        """
        if self.settings.max_split_size is None or self.settings.expandable_segments:
            return False  # expandable segments have no whole blocks to give back
        pool, wanted = request.pool, max(request.size, self.settings.max_split_size)
        single = next(
            (block for block in pool.best_fit(request.stream, wanted) if not block.is_split), None
        )
        if single is not None:
            self._release(single, request.frames, request.now_us)
            return True
        released = 0
        while released < wanted:
            block = pool.largest(request.stream)
            if block is None or block.is_split or not self.settings.is_oversize(block.size):
                return False
            released += block.size
            self._release(block, request.frames, request.now_us)
        return True

    def _release(self, block: Block, frames: Frames, now_us: int) -> None:
        """One whole free segment (``release_block``)."""
        block.pool.remove(block)
        stack = frames or block.segment_frames
        entry = Entry("segment_free", block.address, block.size, block.stream, stack, now_us)
        self._ledger.give_back(entry, small=block.pool.small)
        self._ledger.stats.segment.take(1, small=block.pool.small)
        if self.settings.is_oversize(block.size):
            self._ledger.stats.oversize_segments.take(1)

    # -- where an allocation goes

    def _carve(self, block: Block, size: int) -> Block:
        """Splits off what the request does not need (``alloc_found_block``)."""
        pool, was_split = block.pool, block.is_split
        counted = block.reach is None  # torch counts no inactive_split in expandable segments
        if not self.settings.splits(block.size, size, small=pool.small):
            if was_split and counted:
                self._count_split(-1, -block.size, pool)
            return block
        block, rest = block.cut_before(size), block
        pool.add(rest)
        if counted:
            self._count_split(0 if was_split else 1, -size if was_split else rest.size, pool)
        return block

    def _activate(self, block: Block, requested: int, frames: Frames) -> None:
        block.state, block.requested, block.frames = "active_allocated", requested, frames
        self._live[block.address] = block
        stats, small = self._ledger.stats, block.pool.small
        stats.allocation.add(1, small=small)
        stats.allocated_bytes.add(block.size, small=small)
        stats.active.add(1, small=small)
        stats.active_bytes.add(block.size, small=small)
        stats.requested_bytes.add(requested, small=small)
        if self.settings.is_oversize(block.size):
            stats.oversize_allocations.add(1)

    # -- the steps of a free

    def _complete_pending(self, block: Block, now_us: int) -> None:
        del self._pending[block.address]
        self._complete(block, now_us, block.frames)

    def _complete(self, block: Block, now_us: int, frames: Frames) -> None:
        """Joins the block with its free neighbours and caches it (``free_block``)."""
        pool, stats, size, requested = block.pool, self._ledger.stats, block.size, block.requested
        self._ledger.history.append(
            Entry("free_completed", block.address, requested, block.stream, frames, now_us)
        )
        block.state, block.requested, block.frames = "inactive", 0, ()
        gains = [
            gain
            for gain in (pool.merge(block, block.previous), pool.merge(block, block.next))
            if gain
        ]
        pool.add(block)
        if block.reach is None:
            split = block.is_split
            self._count_split(split - len(gains), (block.size if split else 0) - sum(gains), pool)
        stats.active.take(1, small=pool.small)
        stats.active_bytes.take(size, small=pool.small)
        stats.requested_bytes.take(requested, small=pool.small)

    def _count_split(self, blocks: int, size: int, pool: Pool) -> None:
        self._ledger.stats.inactive_split.change(blocks, small=pool.small)
        self._ledger.stats.inactive_split_bytes.change(size, small=pool.small)

    def _out_of_memory(self, request: Request) -> OutOfMemory:
        ledger = self._ledger
        ledger.stats.num_ooms += 1
        ledger.history.append(
            Entry("oom", ledger.free, request.size, request.stream, request.frames, request.now_us)
        )
        return OutOfMemory(
            Shortage(
                requested=request.nbytes,
                tried=self.settings.segment_size(request.size),
                device=self.device,
                total=ledger.total,
                free=ledger.free,
                in_use=ledger.reserved + ledger.outside,
                allocated=ledger.stats.allocated_bytes.every.current,
                reserved=ledger.reserved,
            )
        )


def _clock(now_us: int | None) -> int:
    return time.time_ns() // 1000 if now_us is None else now_us


# -- snapshot --------------------------------------------------------------------------------------
# Writes the allocator's state and history in the schema of ``torch.cuda.memory._snapshot()``.


def snapshot_of(
    blocks: Iterable[Block], history: Iterable[Entry], settings: AllocatorSettings, device: int
) -> dict[str, Any]:
    """The snapshot of one device; the histories before it are empty lists, as in torch's."""
    heads = [block for block in blocks if block.previous is None or not block.previous.mapped]
    return {
        "segments": [
            _segment(head, device) for head in sorted(heads, key=lambda block: block.address)
        ],
        "device_traces": [*([] for _ in range(device)), [entry.row() for entry in history]],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": settings.text,
            "max_split_size": -1 if settings.max_split_size is None else settings.max_split_size,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": settings.expandable_segments,
            "roundup_power2_divisions": {
                str(1 << n): settings.roundup_power2_divisions[n] for n in range(INTERVALS)
            },
        },
        "external_annotations": [],
    }


def _segment(head: Block, device: int) -> dict[str, Any]:
    """A segment; of an expandable one, a stretch without gaps."""
    blocks: list[Block] = []
    block: Block | None = head
    while block is not None and block.mapped:
        blocks.append(block)
        block = block.next
    return {
        "device": device,
        "address": head.address,
        "total_size": sum(each.size for each in blocks),
        "allocated_size": sum(each.size for each in blocks if each.state == "active_allocated"),
        "active_size": sum(each.size for each in blocks if not each.is_free),
        "requested_size": sum(each.requested for each in blocks),
        "stream": head.stream,
        "segment_type": "small" if head.pool.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": head.reach is not None,
        "frames": listed(head.segment_frames),
        "blocks": [_block(each) for each in blocks],
    }


def _block(block: Block) -> dict[str, Any]:
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": block.requested,
        "state": block.state,
        "frames": listed(block.frames),
    }


# -- expandable ------------------------------------------------------------------------------------
# Expandable segments: address space as large as the device, into which memory is mapped page by
# page where it is needed.


def room(block: Block) -> int:
    """Bytes a free block has, or could be grown to (``expandable_size``, get_free_block)."""
    following = block.next
    return block.size + (following.size if following is not None and not following.mapped else 0)


class ExpandableSegments:
    """Maps and unmaps pages: 2 MiB (small pool), ``large_segment_size`` or 20 MiB (large)."""

    def __init__(self, ledger: Ledger, settings: AllocatorSettings) -> None:
        self._ledger, self._settings = ledger, settings

    def grow(self, pool: Pool, stream: int, size: int, frames: Frames, now_us: int) -> Block | None:
        """A free block of at least ``size`` bytes, taken out of the pool; None if the device has
        not enough.

        What was mapped before the device was full stays in the pool
        (``try_allocate_expandable_block``).
        """
        found: Block | None = self._candidate(pool, stream, size)
        if found is not None and not found.mapped:
            found = self._map(found, min(found.size, size), frames, now_us)
        while found is not None and found.size < size:
            following = found.next
            assert following is not None  # _candidate() saw enough room
            found = self._map(following, min(size - found.size, following.size), frames, now_us)
        if found is not None:
            pool.remove(found)
        return found

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
        """The lowest place with enough to map, with a free block before it."""
        for block in pool.unmapped(stream):
            start = (
                block.previous if block.previous is not None and block.previous.is_free else block
            )
            if _has_room(start, size):
                return start
        return self._reserve(pool, stream)

    def _reserve(self, pool: Pool, stream: int) -> Block:
        """New address space, 9/8 of the device: pages unmapped at its front may move to its end."""
        page = SMALL_BUFFER if pool.small else self._settings.large_segment_size  # it grows by
        size = -(-(self._ledger.total * 9 // 8) // page) * page
        address = self._ledger.address_range(size)
        block = Block(pool, stream, address, size, ObjectSearch(address, size, page))
        block.mapped = False
        pool.add_unmapped(block)
        return block

    def _map(self, block: Block, size: int, frames: Frames, now_us: int) -> Block | None:
        """The front of an unmapped block, backed and joined with free neighbours (``map_block``);
        None if the device has not enough.
        """
        assert block.reach is not None
        start, end = block.reach.pages(block.address, block.address + size)
        if end - start > self._ledger.free:
            return None
        pool = block.pool
        pool.remove_unmapped(block)
        if end < block.end:
            rest, block = block, block.cut_before(end - start)
            pool.add_unmapped(rest)
        block.mapped = True
        self._ledger.take(
            Entry("segment_map", start, end - start, block.stream, frames, now_us), small=pool.small
        )
        pool.merge(block, block.previous)
        pool.merge(block, block.next)
        pool.add(block)
        if block.previous is None or not block.previous.mapped:
            block.segment_frames = block.segment_frames or frames
        return block


def _has_room(block: Block | None, size: int) -> bool:
    found = 0
    while found < size and block is not None and block.is_free:
        found += block.size
        block = block.next
    return found >= size


# -- oom -------------------------------------------------------------------------------------------
# The error of a simulated device that is full, in torch's own words.


@dataclass(frozen=True)
class Shortage:
    """The figures of one failed request, in bytes.

    ``tried`` is what was asked of the device: the whole segment, more than ``requested``. ``free``
    is what the device had left, ``in_use`` what this process takes of it (the CUDA context too).
    """

    requested: int
    tried: int
    device: int
    total: int
    free: int
    in_use: int
    allocated: int
    reserved: int

    @property
    def message(self) -> str:
        """What torch writes (``malloc`` in CUDACachingAllocator.cpp), its double spaces too."""
        return (
            f"CUDA out of memory. Tried to allocate {format_size(self.tried)}. GPU {self.device} "
            "has a total capacity of"
            f" {format_size(self.total)} of which {format_size(self.free)} is free. Including "
            "non-PyTorch memory, this"
            f" process has {format_size(self.in_use)} memory in use. Of the allocated "
            "memory"
            f" {format_size(self.allocated)} is allocated by PyTorch, and "
            f"{format_size(self.reserved - self.allocated)} is reserved by"
            " PyTorch but unallocated. If reserved but unallocated memory is large try setting"
            " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
            "documentation for Memory"
            " Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
            "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
        )


class OutOfMemory(RuntimeError):
    """No memory for a request, after the cache was flushed. ``str()`` is torch's message."""

    def __init__(self, shortage: Shortage) -> None:
        super().__init__(shortage)
        self.shortage = shortage

    def __str__(self) -> str:
        return self.shortage.message


def format_size(size: int) -> str:
    """A size as torch's messages write it: a unit from just above one (``format_size``)."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size > unit:
            return f"{size / unit:.2f} {name}"
    return f"{size} bytes"
