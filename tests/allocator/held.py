"""What torch's own caching allocator did, replayed on ours event by event.

A recording (tests/cuda/allocator_recorder.py makes them) holds each event of torch's history, the
calls of ``empty_cache``, ``torch.cuda.memory_stats`` after each operator and the segments now and
then. What a program does (allocations, frees, ``empty_cache``) drives ours; all else that torch
wrote must come out of it.
"""

from __future__ import annotations

import bisect
import gzip
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from auditor.allocator import AllocatorSettings, CachingAllocator, OutOfMemory

MIB = 1 << 20
STATS = tuple(
    f"{name}.{pool}.current"
    for name in """
        allocated_bytes reserved_bytes active_bytes requested_bytes inactive_split_bytes
        allocation segment active inactive_split
    """.split()
    for pool in ("all", "small_pool", "large_pool")
) + (
    "allocated_bytes.all.peak",
    "reserved_bytes.all.peak",
    "active_bytes.all.peak",
    "requested_bytes.all.peak",
    "oversize_allocations.current",
    "oversize_segments.current",
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
)
"""Keys of ``torch.cuda.memory_stats`` that are compared, in the order of a sample."""

GAINS = ("segment_alloc",)
PROGRAM = ("alloc", "oom", "free_requested", "free_completed")
Segment = tuple[int, int, int, str, list[list[Any]]]
"""Address, bytes, stream, pool, and the blocks as (bytes, state, requested bytes)."""


class Event(NamedTuple):
    """One row of torch's history. ``address`` is, for ``oom``, what the device had left."""

    action: str
    address: int
    size: int
    stream: int


@dataclass
class Recording:
    """One program on torch's allocator. Positions are numbers of events before."""

    name: str
    settings: str
    torch: str
    total: int
    outside: int
    events: list[Event]
    flushes: list[int] = field(default_factory=list)
    """Positions at which the program called ``empty_cache``."""
    resets: list[int] = field(default_factory=list)
    """Positions at which it called ``reset_peak_memory_stats``."""
    samples: list[tuple[int, list[int]]] = field(default_factory=list)
    layouts: list[tuple[int, list[Segment]]] = field(default_factory=list)

    @property
    def ties_by_address(self):
        """Whether torch takes the lowest of equal free blocks: 2.14.1 takes the oldest segment."""
        return tuple(int(part) for part in self.torch.split(".")[:2]) < (2, 14)

    @classmethod
    def read(cls, path):
        """From gzipped JSON."""
        found = json.loads(gzip.decompress(path.read_bytes()))
        found["events"] = [Event(*row) for row in found["events"]]
        return cls(**found)

    def write(self, path):
        """As gzipped JSON, the same bytes for the same recording."""
        text = json.dumps(vars(self), separators=(",", ":")).encode()
        path.write_bytes(gzip.compress(text, 9, mtime=0))


@dataclass(frozen=True)
class Held:
    """What a comparison came to. ``difference`` is the first one in words, None where none is."""

    events: int
    samples: int
    layouts: int
    peak_allocated: int
    peak_reserved: int
    difference: str | None


class _Differs(Exception):
    pass


class _Places:
    """Addresses as (segment, offset): which segment it is counts, not where the driver put it."""

    def __init__(self):
        self._starts: list[int] = []
        self._ranges: dict[int, tuple[int, int]] = {}
        self._count = 0

    def grown(self, address, size):
        """New address space of a segment, unless it is in a known one."""
        if self.known(address):
            return
        bisect.insort(self._starts, address)
        self._ranges[address] = (self._count, size)
        self._count += 1

    def gone(self, address):
        """The segment that holds an address went back to the device."""
        start = self._starts.pop(bisect.bisect_right(self._starts, address) - 1)
        del self._ranges[start]

    def known(self, address):
        """Whether a segment holds that address."""
        return self.at(address)[0] >= 0

    def at(self, address):
        """(number of the segment, offset in it); (-1, address) where there is none."""
        place = bisect.bisect_right(self._starts, address) - 1
        if place >= 0:
            start = self._starts[place]
            number, size = self._ranges[start]
            if address < start + size:
                return number, address - start
        return -1, address


class _Side:
    """One of the two allocators: its events with addresses as places."""

    def __init__(self, reach):
        self.places = _Places()
        self._reach = reach
        self._mapped: dict[int, int] = defaultdict(int)

    def seen(self, event):
        """The event as it is compared."""
        action, address, size, stream = event
        if action == "oom":
            return action, address, size, stream
        if action == "segment_alloc":
            self.places.grown(address, size)
        elif action == "segment_map":
            self.places.grown(address, self._reach)
        number, offset = self.places.at(address)
        if action == "segment_map":
            self._mapped[number] += size
        elif action == "segment_unmap":
            self._mapped[number] -= size
        if action == "segment_free" or (action == "segment_unmap" and not self._mapped[number]):
            self.places.gone(address)  # torch gives up address space without a page
        return action, number, offset, size, stream


class _Replay:
    def __init__(self, recording):
        settings = AllocatorSettings.parse(recording.settings)
        self.recording = recording
        self.allocator = CachingAllocator(
            recording.total, settings=settings, outside_bytes=recording.outside
        )
        if recording.ties_by_address:
            self._take_their_addresses()
        reach = recording.total * 9 // 8
        self.real, self.ours = _Side(reach), _Side(reach)
        self.live: dict[int, int] = {}
        self.done = self.samples = self.layouts = 0
        self._history = self.allocator._ledger.history
        self._taken = 0

    def _take_their_addresses(self):
        """Puts our segments where torch's were, as free blocks are taken by address."""
        theirs = iter([each.address for each in self.recording.events if each.action in GAINS])
        ledger: Any = self.allocator._ledger
        otherwise = ledger.address_range
        ledger.address_range = lambda size: next(theirs, None) or otherwise(size)

    def run(self):
        """Compares to the end."""
        samples = dict(self.recording.samples)
        layouts = dict(self.recording.layouts)
        for upto in self._steps():
            if upto in samples:
                self._sample(samples[upto])
                self.samples += 1
            if upto in layouts:
                self._layout(layouts[upto])
                self.layouts += 1

    def _steps(self):
        events, flushes = self.recording.events, set(self.recording.flushes)
        while self.done < len(events) or self.done in flushes:
            if self.done in flushes:
                flushes.discard(self.done)
                self.allocator.empty_cache(self.done)
                self._compare(len(self._new()))
            else:
                self._program(events)
            if self.done in self.recording.resets:
                self.allocator.reset_peak()
            yield self.done
        if flushes:
            raise _Differs(
                f"empty_cache after {min(flushes)} events has no place in torch's history"
            )

    def _program(self, events):
        """The next call of the program, with what torch wrote before it of its own accord."""
        at = self.done
        while at < len(events) and events[at].action not in PROGRAM:
            at += 1
        if at == len(events):
            raise _Differs(f"event {self.done}: torch wrote {events[self.done]} by itself")
        self._call(events[at], events[at + 1] if at + 1 < len(events) else None)
        self._compare(len(self._new()))

    def _call(self, event, following):
        allocator, at = self.allocator, self.done
        if event.action in ("alloc", "oom"):
            size = event.size
            try:
                self.live[event.address] = allocator.malloc(size, event.stream, now_us=at)
            except OutOfMemory:
                return
        elif event.action == "free_requested":
            ends = following is not None and following[:2] == ("free_completed", event.address)
            pending = not ends or at + 1 in self.recording.flushes
            place = self.live[event.address] if pending else self.live.pop(event.address)
            allocator.free(place, at, pending=pending)
        else:
            allocator.complete_free(self.live.pop(event.address), at)

    def _new(self):
        entries = list(self._history)[self._taken :] if self._taken == 0 else self._tail()
        return [Event(each.action, each.address, each.size, each.stream) for each in entries]

    def _tail(self):
        history: Any = self._history
        return [history[place] for place in range(self._taken, len(history))]

    def _compare(self, count):
        theirs = self.recording.events[self.done : self.done + count]
        for wanted, found in zip([*theirs, *[None] * (count - len(theirs))], self._new()):
            if wanted is None:
                raise _Differs(f"event {self.done}: ours goes on with {found}")
            one, other = self.real.seen(wanted), self.ours.seen(found)
            if one != other:
                raise _Differs(f"event {self.done}: torch {one}, ours {other}")
            self.done += 1
        self._taken += count

    def _sample(self, wanted):
        stats = self.allocator.stats()
        for key, value in zip(STATS, wanted, strict=True):
            if stats[key] != value:
                raise _Differs(f"event {self.done}: {key} is {value}, ours {stats[key]}")

    def _layout(self, wanted):
        theirs = {
            self.real.places.at(address): (size, stream, kind, [tuple(each) for each in blocks])
            for address, size, stream, kind, blocks in wanted
        }
        snapshot = self.allocator.snapshot()["segments"]
        ours = {self.ours.places.at(each["address"]): _segment(each)[1:] for each in snapshot}
        for place in sorted({*theirs, *ours}):
            if theirs.get(place) != ours.get(place):
                raise _Differs(
                    f"event {self.done}: segment {place} is {theirs.get(place)}, ours"
                    f" {ours.get(place)}"
                )


def _segment(row):
    blocks = [(each["size"], each["state"], each["requested_size"]) for each in row["blocks"]]
    return row["address"], row["total_size"], row["stream"], row["segment_type"], blocks


def held(recording):
    """Replays the recording on ours and compares to the first difference."""
    replay = _Replay(recording)
    difference = None
    try:
        replay.run()
    except _Differs as error:
        difference = str(error)
    stats = replay.allocator.stats()
    return Held(
        replay.done,
        replay.samples,
        replay.layouts,
        stats["allocated_bytes.all.peak"],
        stats["reserved_bytes.all.peak"],
        difference,
    )
