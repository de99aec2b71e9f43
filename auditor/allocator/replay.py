"""What if: a recorded history, run again with other settings or on another card."""

from __future__ import annotations

from dataclasses import dataclass, field

from auditor.allocator.caching import CachingAllocator
from auditor.allocator.history import Call, History
from auditor.allocator.oom import OutOfMemory
from auditor.allocator.settings import AllocatorSettings

UNLIMITED = 1 << 50
"""Bytes of a card on which nothing ever fails."""


@dataclass(frozen=True)
class Replayed:
    """What one replay came to. Sizes in bytes; peaks count from the recording's first event.

    ``ooms`` are requests that failed. Where one failed that had succeeded in the recording, the
    program could not have gone on: ``stopped_at`` is the index of that event, and all else holds up
    to it. ``recovered`` are requests that had failed in the recording and had room here; what the
    program would have done next is unknown.
    """

    settings: AllocatorSettings
    total_bytes: int | None
    peak_reserved: int
    peak_allocated: int
    start_reserved: int
    final_reserved: int
    final_allocated: int
    retries: int
    ooms: int
    recovered: int
    segment_allocs: tuple[int, ...]
    stopped_at: int | None
    shortage: OutOfMemory | None
    allocator: CachingAllocator = field(repr=False, compare=False)
    """As it stood at the end, with its blocks and its own history."""


def replay(
    history: History,
    settings: AllocatorSettings | None = None,
    *,
    total_bytes: int | None = None,
    fresh: bool | None = None,
    empty_caches: bool = True,
) -> Replayed:
    """Runs the history under ``settings``, those recorded by default.

    On a card of ``total_bytes`` the allocator flushes its cache where that card is full. Without a
    size nothing fails, and the cache is flushed where the recorded run did. ``fresh`` allocates
    what was live at the start anew, as a run with these settings from its beginning would have;
    otherwise the recorded segments are taken over with their free space. By default: fresh when the
    settings are not those recorded. ``empty_caches=False`` leaves the program's calls of
    ``empty_cache`` out. Raises :class:`ValueError` for a history that cannot be taken over as it
    stood.
    """
    settings = settings if settings is not None else history.settings
    fresh = (settings != history.settings or history.expandable) if fresh is None else fresh
    if history.expandable and not fresh:
        raise ValueError("a history of expandable segments can only be replayed afresh")
    run = _Run(history, settings, total_bytes, empty_caches=empty_caches)
    try:
        run.set_up(fresh=fresh)
        for call in history.calls:
            run.step(call)
    except OutOfMemory as error:
        run.shortage = error
    return run.result()


class _Run:
    """One replay: the allocator, and where it put blocks that the recording names otherwise."""

    def __init__(
        self,
        history: History,
        settings: AllocatorSettings,
        total: int | None,
        *,
        empty_caches: bool,
    ) -> None:
        self._history, self._total, self._empty_caches = history, total, empty_caches
        self._allocator = CachingAllocator(UNLIMITED if total is None else total, settings=settings)
        self._places: dict[int, int] = {}
        self._at = -1
        self._start_reserved = 0
        self._forced = self._recovered = self._survived = 0
        self.shortage: OutOfMemory | None = None

    def set_up(self, *, fresh: bool) -> None:
        """Brings the allocator to the state in which the recording began."""
        for segment in self._history.start:
            if not fresh:
                live = [(block.address, block.size, block.requested) for block in segment.live]
                self._allocator.adopt(
                    segment.address,
                    segment.size,
                    small=segment.small,
                    stream=segment.stream,
                    live=live,
                )
            for block in segment.live:
                place = (
                    self._allocator.malloc(block.requested, block.stream, now_us=0)
                    if fresh
                    else block.address
                )
                self._places[block.address] = place
        self._start_reserved = self._allocator.stats()["reserved_bytes.all.current"]

    def step(self, call: Call) -> None:
        """One call of the program. Raises :class:`OutOfMemory` where it would have died."""
        self._at, allocator = call.at, self._allocator
        if call.action == "alloc":
            self._places[call.address] = allocator.malloc(call.size, call.stream, now_us=call.at)
        elif call.action == "oom":
            self._fail(call)
        elif call.action == "empty_cache" and self._empty_caches:
            allocator.empty_cache(call.at)
        elif call.action == "flush" and self._total is None:
            self._forced += 1
            allocator.empty_cache(call.at)
        elif call.action == "free_ends":
            allocator.complete_free(self._places.pop(call.address, 0), call.at)
        elif call.action in ("free", "free_begins") and call.address in self._places:
            place = (
                self._places[call.address]
                if call.action == "free_begins"
                else self._places.pop(call.address)
            )
            allocator.free(place, call.at, pending=call.action == "free_begins")

    def _fail(self, call: Call) -> None:
        """A request that failed when it was recorded, and that the program lived to see fail."""
        if self._total is None:
            return
        try:
            self._allocator.free(
                self._allocator.malloc(call.size, call.stream, now_us=call.at), call.at
            )
            self._recovered += 1
        except OutOfMemory:
            self._survived += 1

    def result(self) -> Replayed:
        """The figures."""
        stats = self._allocator.stats()
        gained = [
            entry.size
            for entry in self._allocator.history
            if entry.action in ("segment_alloc", "segment_map")
        ]
        return Replayed(
            settings=self._allocator.settings,
            total_bytes=self._total,
            peak_reserved=stats["reserved_bytes.all.peak"],
            peak_allocated=stats["allocated_bytes.all.peak"],
            start_reserved=self._start_reserved,
            final_reserved=stats["reserved_bytes.all.current"],
            final_allocated=stats["allocated_bytes.all.current"],
            retries=stats["num_alloc_retries"] + self._forced,
            ooms=stats["num_ooms"],
            recovered=self._recovered,
            segment_allocs=tuple(gained),
            stopped_at=self._at if self.shortage is not None else None,
            shortage=self.shortage,
            allocator=self._allocator,
        )
