"""What if: a recorded history, run again with other settings or on another card."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from auditor.allocator.caching import CachingAllocator, OutOfMemory
from auditor.allocator.settings import SMALL_BUFFER, SMALL_SIZE, AllocatorSettings

UNLIMITED = 1 << 50
"""Bytes of a card on which nothing ever fails."""


@dataclass(frozen=True)
class AllocatorReplay:
    """What one replay came to. Sizes in bytes; peaks count from the recording's first event.

    ``ooms`` are requests that failed. Where one failed that had succeeded in the recording
    (``shortage``), the program could not have gone on, and all else holds up to it.
    """

    peak_reserved: int
    peak_allocated: int
    start_reserved: int
    retries: int
    ooms: int
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
) -> AllocatorReplay:
    """Runs the history under ``settings``, those recorded by default.

    On a card of ``total_bytes`` the allocator flushes its cache when the card is full. Without a
    size no request fails, and the cache is flushed when the recorded run flushed it. ``fresh``
    allocates again what was live at the start, as a run with these settings from its beginning
    would have; otherwise the recorded segments are taken over with their free space. By default:
    fresh when the settings are not those recorded. ``empty_caches=False`` leaves the program's
    calls of ``empty_cache`` out. Raises :class:`ValueError` for a history that cannot be taken over
    as it stood.
    """
    settings = settings if settings is not None else history.settings
    fresh = (settings != history.settings or history.expandable) if fresh is None else fresh
    if history.expandable and not fresh:
        raise ValueError("a history of expandable segments can only be replayed afresh")
    run = _ReplayRun(history, settings, total_bytes, empty_caches=empty_caches)
    try:
        run.set_up(fresh=fresh)
        for call in history.calls:
            run.step(call)
    except OutOfMemory as error:
        run.shortage = error
    return run.result()


class _ReplayRun:
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
        self._start_reserved = self._forced = 0
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
                place = block.address
                if fresh:
                    place = self._allocator.malloc(block.requested, block.stream, now_us=0)
                self._places[block.address] = place
        self._start_reserved = self._allocator.stats()["reserved_bytes.all.current"]

    def step(self, call: AllocatorCall) -> None:
        """One call of the program. Raises :class:`OutOfMemory` if it would have died."""
        allocator = self._allocator
        if call.action == "alloc":
            self._places[call.address] = allocator.malloc(call.size, call.stream, now_us=call.at)
        elif call.action == "oom":
            # a request that failed when it was recorded, and that the program lived to see fail
            with suppress(OutOfMemory):
                if self._total is not None:
                    allocator.free(
                        allocator.malloc(call.size, call.stream, now_us=call.at), call.at
                    )
        elif call.action == "empty_cache" and self._empty_caches:
            allocator.empty_cache(call.at)
        elif call.action == "flush" and self._total is None:
            self._forced += 1
            allocator.empty_cache(call.at)
        elif call.action == "free_ends":
            allocator.complete_free(self._places.pop(call.address, 0), call.at)
        elif call.action in ("free", "free_begins") and call.address in self._places:
            place, pending = self._places[call.address], call.action == "free_begins"
            if not pending:
                del self._places[call.address]
            allocator.free(place, call.at, pending=pending)

    def result(self) -> AllocatorReplay:
        """The figures."""
        stats = self._allocator.stats()
        return AllocatorReplay(
            peak_reserved=stats["reserved_bytes.all.peak"],
            peak_allocated=stats["allocated_bytes.all.peak"],
            start_reserved=self._start_reserved,
            retries=stats["num_alloc_retries"] + self._forced,
            ooms=stats["num_ooms"],
            shortage=self.shortage,
            allocator=self._allocator,
        )


# -- history ---------------------------------------------------------------------------------------
# A recorded memory snapshot, read as a program for the allocator: what was live when it began, then
# each call.
#
# Torch records what the allocator did, too (``segment_alloc``, ``segment_free``). Of that only the
# calls of ``empty_cache`` are part of the program; the rest is what a replay is compared with.


Action = Literal["alloc", "free", "free_begins", "free_ends", "oom", "empty_cache", "flush"]
Event = Mapping[str, Any]
"""One row of a snapshot: an event of its trace, a segment, a block."""
GAINS, LOSSES = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


class AllocatorCall(NamedTuple):
    """One step of the program. ``flush`` is a cache flushed inside an allocation because the device
    was full.

    A free is ``free_begins`` and ``free_ends`` where other streams used the block in between, else
    one ``free``. ``at`` is its place in the recorded history.
    """

    action: Action
    address: int = 0
    size: int = 0
    stream: int = 0
    at: int = 0


@dataclass(frozen=True)
class BlockAtStart:
    """A block that was live at the start. ``requested`` is what the program had asked for."""

    address: int
    size: int
    requested: int
    stream: int


@dataclass
class HeldSegment:
    """A segment that the allocator held when the recording began."""

    address: int
    size: int
    stream: int
    small: bool
    live: list[BlockAtStart] = field(default_factory=list)


@dataclass(frozen=True)
class Recorded:
    """What the real allocator did : the truth a replay is compared with. Sizes in bytes."""

    start_reserved: int
    peak_reserved: int
    retries: int
    card_below: int | None
    """More than torch could have held on that card: what it held when the device refused a segment,
    and that segment. None if nothing was refused. The card let it hold ``peak_reserved`` at
    least."""


@dataclass(frozen=True)
class History:
    """The history of one device, from :meth:`from_snapshot`."""

    start: tuple[HeldSegment, ...]
    calls: tuple[AllocatorCall, ...]
    settings: AllocatorSettings
    recorded: Recorded
    expandable: bool
    """Whether expandable segments were used: ``start`` names live blocks, segments are lost."""
    unknown_flushes: int
    """Times that cached memory went back for no recorded reason; taken for ``empty_cache``."""

    @classmethod
    def from_snapshot(cls, data: Mapping[str, Any], device: int = 0) -> History:
        """From the data of ``torch.cuda.memory._snapshot()`` or its pickle, read as plain
        containers.

        Raises :class:`ValueError` if there is no history of that device, or the data has another
        layout.
        """
        try:
            trace = data["device_traces"][device]
            segments = [segment for segment in data["segments"] if segment["device"] == device]
            settings = AllocatorSettings.from_snapshot(data.get("allocator_settings"))
            reader = _Reader(trace, segments, settings)
            return cls(
                start=tuple(reader.start()),
                calls=tuple(reader.calls),
                settings=settings,
                recorded=reader.recorded(),
                expandable=any(bool(segment.get("is_expandable")) for segment in segments)
                or reader.has_pages,
                unknown_flushes=reader.unknown_flushes,
            )
        except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise ValueError(
                f"the snapshot has no readable history of device {device}: {type(error).__name__}"
            ) from None


class _Reader:
    """Walks a history forwards for the calls, backwards from the final segments for the start."""

    def __init__(
        self, trace: Sequence[Event], segments: Sequence[Event], settings: AllocatorSettings
    ) -> None:
        self._trace, self._segments, self._settings = trace, segments, settings
        self.unknown_flushes = 0
        self.has_pages = any(event["action"] in ("segment_map", "segment_unmap") for event in trace)
        self.calls = self._read_calls()

    def _read_calls(self) -> list[AllocatorCall]:
        found: list[AllocatorCall] = []
        begun: set[int] = set()
        losses: list[tuple[int, Event]] = []
        for index, event in enumerate(self._trace):
            if event["action"] in LOSSES:
                losses.append((index, event))
                continue
            if losses:
                found.append(self._flush(losses))
                losses = []
            action = CALLS.get(event["action"])
            if action is None:
                continue
            call = AllocatorCall(
                action, int(event.get("addr", 0)), int(event["size"]), int(event["stream"]), index
            )
            if action == "free_ends":
                self._end_free(call, found, begun)
                continue
            if action == "free_begins":
                begun.add(call.address)
            found.append(call)
        return [*found, self._flush(losses)] if losses else found

    @staticmethod
    def _end_free(call: AllocatorCall, found: list[AllocatorCall], begun: set[int]) -> None:
        """A free that ends at once, or began earlier, is one ``free``; else its end is one too."""
        if call.address not in begun:
            found.append(call._replace(action="free"))
            return
        begun.discard(call.address)
        if found[-1].address == call.address:
            found[-1] = call._replace(action="free")
        else:
            found.append(call)

    def _flush(self, events: Sequence[tuple[int, Event]]) -> AllocatorCall:
        """Why cached memory went back: ``empty_cache``, or an allocation that had no room."""
        index, first = events[0]
        following = events[-1][0] + 1
        after = self._trace[following] if following < len(self._trace) else {"action": ""}
        frames = first.get("frames") or []
        emptied = any(
            "empty_cache" in frame["name"] or "emptyCache" in frame["name"] for frame in frames
        )
        called = emptied or after["action"] not in (*GAINS, "alloc", "oom")
        if not called and frames and frames == (after.get("frames") or []):
            return AllocatorCall("flush", at=index)
        self.unknown_flushes += not called
        return AllocatorCall("empty_cache", at=index)

    def start(self) -> list[HeldSegment]:
        """Segments and live blocks before the first event: the final ones, all events undone."""
        held = {
            (at := int(each["address"])): HeldSegment(
                at, int(each["total_size"]), int(each["stream"]), each["segment_type"] == "small"
            )
            for each in self._segments
        }
        live = {
            address: BlockAtStart(
                address,
                size := int(block["size"]),
                int(block.get("requested_size", size)),
                int(segment["stream"]),
            )
            for segment in self._segments
            for address, block in blocks_of([segment])
            if block["state"] != "inactive"
        }
        for event in reversed(self._trace):
            action, address = event["action"], event.get("addr", 0)
            size, stream = event["size"], event["stream"]
            if action == "alloc":
                live.pop(address, None)
            elif action == "free_completed":
                live[address] = BlockAtStart(address, 0, size, stream)
            elif action == "segment_alloc":
                held.pop(address, None)
            elif action == "segment_free":
                held[address] = HeldSegment(address, size, stream, small=size <= SMALL_BUFFER)
        return _placed(held, live, self._settings)

    def recorded(self) -> Recorded:
        """What the real allocator did."""
        final = sum(int(segment["total_size"]) for segment in self._segments)
        changes = [_change(event) for event in self._trace]
        start = reserved = peak = final - sum(changes)
        refused: list[int] = []
        flushes = {call.at for call in self.calls if call.action == "flush"}
        asking: int | None = None
        for index, (event, change) in enumerate(zip(self._trace, changes, strict=True)):
            if index in flushes:
                asking = reserved
            elif change >= 0:
                # the segment for which the cache was flushed, or none because the cache now served
                refused += [asking + change] if asking is not None and change else []
                asking = None
            if event["action"] == "oom":
                refused.append(reserved + self._settings.segment_size(int(event["size"])))
            reserved += change
            peak = max(peak, reserved)
        return Recorded(start, peak, len(flushes), min(refused, default=None))


def _change(event: Event) -> int:
    if event["action"] in GAINS:
        return int(event["size"])
    return -int(event["size"]) if event["action"] in LOSSES else 0


CALLS: Mapping[str, Action] = {
    "alloc": "alloc",
    "free_requested": "free_begins",
    "free_completed": "free_ends",
    "oom": "oom",
}


def blocks_of(segments: Iterable[Event]) -> Iterator[tuple[int, Event]]:
    """The blocks of segments, each with its address: older snapshots do not write it."""
    for segment in segments:
        address = int(segment.get("address", 0))
        for block in segment["blocks"]:
            yield address, block
            address += int(block["size"])


def _placed(
    held: Mapping[int, HeldSegment], live: Mapping[int, BlockAtStart], settings: AllocatorSettings
) -> list[HeldSegment]:
    """Live blocks in segments. One freed since is known by its request: its place has its size."""
    segments = sorted(held.values(), key=lambda segment: segment.address)
    starts = [segment.address for segment in segments]
    inside: dict[int, list[BlockAtStart]] = defaultdict(list)
    for block in sorted(live.values(), key=lambda block: block.address):
        place = bisect.bisect_right(starts, block.address) - 1
        # in pages that were unmapped since
        if place < 0 or block.address >= starts[place] + segments[place].size:
            size = block.size or settings.round_size(block.requested)
            own = HeldSegment(block.address, size, block.stream, small=size <= SMALL_SIZE)
            own.live.append(replace(block, size=size))
            segments.append(own)
        else:
            inside[place].append(block)
    for place, blocks in inside.items():
        segment = segments[place]
        ends = [*(each.address for each in blocks[1:]), segment.address + segment.size]
        pairs = zip(blocks, ends, strict=True)
        segment.live = [
            each if each.size else _sized(each, end, settings, small=segment.small)
            for each, end in pairs
        ]
    return segments


def _sized(
    block: BlockAtStart, end: int, settings: AllocatorSettings, *, small: bool
) -> BlockAtStart:
    size = min(settings.round_size(block.requested), end - block.address)
    gap = end - block.address - size
    return replace(block, size=size + (gap if not small and gap <= SMALL_SIZE else 0))
