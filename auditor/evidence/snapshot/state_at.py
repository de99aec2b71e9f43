"""What lived at one moment of a history: blocks, where each was allocated, segments."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import PurePath
from typing import Any, ClassVar

from auditor import amounts
from auditor.allocator import AllocatorSettings
from auditor.allocator.replay import blocks_of
from auditor.evidence.snapshot.file import Event, SnapshotData, snapshot_of
from auditor.evidence.snapshot.history import Allocations, live_at_end
from auditor.evidence.source.files import Source
from auditor.evidence.table import MALFORMED, Evidence, Table
from auditor.model import Site
from auditor.recordings.schema.sync import OwnerRow
from auditor.rule import NotLooked
from auditor.syntax.index import grouped

Frames = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class LiveBlock:
    """A live block. ``born``: its event, -1 before the history; ``stays``: live at the end."""

    address: int
    size: int
    born: int
    stays: bool
    frames: Frames


@dataclass(frozen=True)
class State:
    """Live blocks and segments (address to size) after one event."""

    blocks: tuple[LiveBlock, ...]
    segments: Mapping[int, int]

    @property
    def largest_free(self) -> int:
        """Bytes of the largest stretch of a segment without a live block."""
        starts = sorted(self.segments)
        ordered = sorted(self.blocks, key=lambda each: each.address)
        inside = grouped(
            (max(0, bisect_right(starts, block.address) - 1), block) for block in ordered
        )
        gaps = (
            _gap(start, start + self.segments[start], inside.get(place, ()))
            for place, start in enumerate(starts)
        )
        return max(gaps, default=0)


def _gap(start: int, end: int, blocks: Iterable[LiveBlock]) -> int:
    largest, at = 0, start
    for block in blocks:
        largest, at = max(largest, block.address - at), max(at, block.address + block.size)
    return max(largest, end - at)


def state_after(data: SnapshotData, device: int, index: int) -> State:
    """The state after event ``index`` of a device's history (the final one where there is none)."""
    trace, segments = data.trace(device), data.of(device)
    round_size = cache(AllocatorSettings.from_snapshot(data.settings).round_size)
    final, held = (
        live_at_end(segments),
        {int(each.get("address", 0)): int(each["total_size"]) for each in segments},
    )
    live = dict(final)
    moved: set[int] = set()  # addresses at which something else lay afterwards
    for event in reversed(trace[index + 1 :]):
        action, address, size = event["action"], event.get("addr", 0), int(event["size"])
        if action == "alloc":
            live.pop(address, None)
            moved.add(address)
        elif action == "free_completed":
            live[address] = round_size(size)
            moved.add(address)
        elif action == "segment_alloc":
            held.pop(address, None)
        elif action == "segment_free":
            held[address] = size
        elif action == "segment_map":
            _take_out(held, address, size)
        elif action == "segment_unmap":
            _put_back(held, address, size)
    kept = {
        address: block.get("frames")
        for address, block in blocks_of(segments)
        if block["state"] != FREE
    }
    born = {
        event["addr"]: at
        for at, event in enumerate(trace[: index + 1])
        if event["action"] == "alloc"
    }
    blocks = []
    for address, size in live.items():
        at, stays = born.get(address, -1), address in final and address not in moved
        frames = (
            trace[at].get("frames") if at >= 0 else kept.get(address) if stays else None
        ) or ()
        blocks.append(LiveBlock(address, size, at, stays, frames))
    return State(tuple(blocks), held)


def _take_out(held: dict[int, int], address: int, size: int) -> None:
    """Pages that were mapped later are cut out of the stretch in which they lie."""
    for start, length in held.items():
        if start <= address and address + size <= start + length:
            break
    else:
        return
    del held[start]
    for first, end in ((start, address), (address + size, start + length)):
        if end > first:
            held[first] = end - first


def _put_back(held: dict[int, int], address: int, size: int) -> None:
    before = next((start for start, length in held.items() if start + length == address), address)
    size += (held.pop(before) if before != address else 0) + held.pop(address + size, 0)
    held[before] = size


def placed(site: Site) -> str:
    """``trainer.py:152 step``; of a long path its last two parts."""
    parts = PurePath(site.file).parts
    file = site.file if len(parts) <= 2 else "/".join(parts[-2:])
    return f"{file}:{site.line} {site.function}".rstrip()


@dataclass(frozen=True)
class Holder:
    """Live blocks that one line allocated. ``site`` is None if no line of the user's is known.

    ``older`` bytes were allocated before the history began, ``stays`` bytes are still live where it
    ends. ``timed`` is False if there is no history: then nothing is known of how long blocks
    live.
    """

    site: Site | None
    size: int
    blocks: int
    stack: tuple[str, ...]
    older: int
    stays: int
    timed: bool = True

    @property
    def label(self) -> str:
        """Its line and function, or why no line is known."""
        if self.site is not None:
            return placed(self.site)
        return (
            "(no line: from before the history)"
            if self.older or not self.timed
            else "(no Python frame: from the backward?)"
        )

    @property
    def lifetime(self) -> str:
        """How long its blocks live, in words."""
        if not self.timed:
            return ""
        if self.older >= 0.9 * self.size:
            return "from before the history"
        if self.stays >= 0.9 * self.size:
            return "kept to the end"
        return "freed again" if self.stays <= 0.1 * self.size else "partly kept"

    @property
    def row(self) -> tuple[str, str]:
        """A row of facts."""
        many = f"{self.blocks} block{'s' * (self.blocks != 1)}"
        return self.label, ", ".join(
            filter(None, (f"{amounts.size(self.size)} in {many}", self.lifetime))
        )


def by_line(
    blocks: Iterable[LiveBlock], origins: Origins, *, timed: bool = True
) -> tuple[Holder, ...]:
    """Holders, the largest first."""
    groups: dict[tuple[Site | None, bool], list[LiveBlock]] = defaultdict(list)
    for block in blocks:
        site = origins.site(block.frames)
        groups[site, site is None and block.born < 0].append(block)
    found = []
    for (site, _), of_line in groups.items():
        largest = max(of_line, key=lambda block: block.size)
        found.append(
            Holder(
                site=site,
                size=sum(block.size for block in of_line),
                blocks=len(of_line),
                stack=origins.stack(largest.frames),
                older=sum(block.size for block in of_line if block.born < 0),
                stays=sum(block.size for block in of_line if block.stays),
                timed=timed,
            )
        )
    return tuple(sorted(found, key=lambda holder: -holder.size))


# -- blocks that stay ------------------------------------------------------------------------------


@dataclass(frozen=True)
class NeverFreedLine:
    """Bytes of a line's blocks live at the end, born in the first, second and last third."""

    site: Site
    thirds: tuple[int, int, int]
    blocks: int

    @property
    def size(self) -> int:
        """All of them."""
        return sum(self.thirds)


@dataclass(frozen=True)
class NeverFreed(Table):
    """Lines with such blocks in every third, the largest first; empty if there is no history.

    Gradients and the like are live at the end too, but were all born in the last step; weights and
    states in the first.
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    lines: tuple[NeverFreedLine, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> NeverFreed:
        """From the history of the device with most memory."""
        try:
            course = evidence.get(Allocations).devices[0]
            return cls(_never_freed(evidence, course.device, len(course.reserved)))
        except (NotLooked, *MALFORMED):
            return cls()


def _never_freed(evidence: Evidence, device: int, events: int) -> tuple[NeverFreedLine, ...]:
    origins = origins_of(evidence)
    thirds: dict[Site, list[int]] = defaultdict(lambda: [0, 0, 0])
    blocks: dict[Site, int] = defaultdict(int)
    for block in state_after(snapshot_of(evidence), device, events).blocks:
        site = origins.site(block.frames) if block.born >= 0 else None
        if site is not None:
            thirds[site][min(2, 3 * block.born // events)] += block.size
            blocks[site] += 1
    found = (
        NeverFreedLine(site, (each[0], each[1], each[2]), blocks[site])
        for site, each in thirds.items()
        if all(each)
    )
    return tuple(sorted(found, key=lambda line: -line.size))


# -- owners ----------------------------------------------------------------------------------------
# What the memory at its peak was for: parameters, gradients, optimizer state, the step's own.


STEP = "step"
OF_STEP, KEPT = (
    "created in the step (activations, temporaries)",
    "other, created in an earlier step and kept",
)
EARLIER = "other, from before the watched steps"
FOR_EVER = 2**63
ORDER = ("parameter", "gradient", "optimizer state")
WORKSPACE = "workspace"
NAMES = {
    "parameter": "parameters",
    "gradient": "gradients",
    "optimizer state": "optimizer state",
    WORKSPACE: "cuBLAS workspaces, which torch keeps",
}


@dataclass(frozen=True)
class Category:
    """Bytes of live blocks that serve one purpose."""

    name: str
    size: int


class Owners:
    """Addresses that the recorder saw in use for something, with the times (us since 1970) when it
    saw them.

    An address is used again for other things: a mark counts for a block only if it was made while
    that block lived.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._marks: dict[str, dict[int, list[int]]] = {what: defaultdict(list) for what in NAMES}
        self.steps: list[int] = []
        self._updates: list[tuple[int, int]] = []
        # of the run that the snapshot is of
        for row in (evidence.recording.to_oom or evidence).rows(OwnerRow):
            if row.what == STEP:
                self.steps.append(int(row.time_us))
                continue
            # parameters are looked at before an optimizer's step, its state after it
            time_us = int(row.time_us)
            if row.what == ORDER[0]:
                self._updates.append((time_us, time_us))
            elif row.what == ORDER[-1] and self._updates:
                self._updates[-1] = (self._updates[-1][0], time_us)
            for address in row.addresses if row.what in self._marks else ():
                self._marks[row.what][address].append(int(row.time_us))

    @property
    def known(self) -> bool:
        """Whether an optimizer's step was seen while allocations were recorded."""
        return any(self._marks[what] for what in ORDER)

    def updating(self, time_us: int) -> bool:
        """Whether an optimizer was stepping then; one without state is not seen to."""
        began = bisect_right(self._updates, (time_us, FOR_EVER)) - 1
        return began >= 0 and time_us <= self._updates[began][1]

    def purpose(self, address: int, born_us: int, gone_us: int) -> str:
        """What a block was for that lived from ``born_us`` until ``gone_us``; empty if unseen."""
        for what, name in NAMES.items():
            times = self._marks[what].get(address, [])
            first = bisect_left(times, born_us)
            if first < len(times) and times[first] <= gone_us:
                return name
        return ""

    def age(self, born_us: int, now_us: int) -> str:
        """Of a block of unknown purpose: from which step it is, if it lives at ``now_us``."""
        began = bisect_right(self.steps, now_us) - 1
        if began >= 0 and born_us >= self.steps[began]:
            return OF_STEP
        return KEPT if self.steps and born_us >= self.steps[0] else EARLIER


def by_category(
    blocks: Iterable[LiveBlock],
    trace: Sequence[Event],
    at: int,
    time_us: Sequence[int],
    owners: Owners,
) -> tuple[Category, ...]:
    """Live blocks after event ``at`` by purpose, the largest first; nothing if unknown."""
    if not owners.known or not time_us:
        return ()
    births = defaultdict(list)
    for index, event in enumerate(trace):
        if event["action"] == "alloc":
            births[event["addr"]].append(index)
    sizes: Counter[str] = Counter()
    for block in blocks:
        later = births[block.address]
        following = bisect_right(later, max(block.born, at))
        gone = time_us[later[following]] if following < len(later) else FOR_EVER
        born = time_us[block.born] if block.born >= 0 else 0
        purpose = owners.purpose(block.address, born, gone) or owners.age(born, time_us[at])
        sizes[purpose] += block.size
    found = (Category(name, size) for name, size in sizes.items())
    return tuple(sorted(found, key=lambda category: -category.size))


# -- segments --------------------------------------------------------------------------------------
# The CUDA allocator's segments and blocks, and which live block keeps which segment.


RECORDER = "/auditor/capture/"
"""Where our own frames lie, which stand in the stacks of operators that a probe watches."""

LIBRARY_MARKS = (
    "/site-packages/",
    "/dist-packages/",
    "/lib/python",
    "/torch/",
    "/torchinductor_",
    RECORDER,
)
STACK_SHOWN = 6
LIBRARY, OUTSIDE, RECORDED = range(3)
FREE = "inactive"


@dataclass(frozen=True)
class SegmentBlock:
    """A stretch of a segment. ``live`` also while its free is pending; ``site`` allocated it."""

    size: int
    live: bool
    site: Site | None = None


@dataclass(frozen=True)
class Segment:
    """Memory obtained from the device by one cudaMalloc. It can only be given back whole."""

    size: int
    blocks: tuple[SegmentBlock, ...]
    expandable: bool = False
    device: int = 0

    @property
    def free_bytes(self) -> int:
        """Bytes in it that no tensor uses."""
        return sum(block.size for block in self.blocks if not block.live)

    @property
    def pin(self) -> SegmentBlock | None:
        """The largest live block: without it and its like the segment could be given back."""
        return max(
            (block for block in self.blocks if block.live),
            key=lambda block: block.size,
            default=None,
        )


@dataclass(frozen=True)
class Pin:
    """A line whose live blocks keep segments that are otherwise free, in part or whole."""

    site: Site
    segments: tuple[Segment, ...]

    @property
    def free_bytes(self) -> int:
        """Free bytes that cannot be given back because of it."""
        return sum(segment.free_bytes for segment in self.segments)

    @property
    def live_bytes(self) -> int:
        """Bytes of the pinning blocks themselves."""
        return sum(block.size for block in self._blocks)

    @property
    def blocks(self) -> int:
        """How many live blocks of that line do it."""
        return len(self._blocks)

    @property
    def _blocks(self) -> list[SegmentBlock]:
        return [
            block
            for segment in self.segments
            for block in segment.blocks
            if block.live and block.site == self.site
        ]


@dataclass(frozen=True)
class Snapshot(Table):
    """Segments of all devices at one moment: the first out-of-memory error, else a step's end."""

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    segments: tuple[Segment, ...] = ()
    at_oom: bool = False

    @classmethod
    def build(cls, evidence: Evidence) -> Snapshot:
        """From the snapshot file. Raises :class:`NotLooked` without a plain one."""
        data = snapshot_of(evidence)
        return cls(_segments(data, evidence), data.at_oom)

    def on(self, device: int) -> Snapshot:
        """The part of one device."""
        return replace(
            self, segments=tuple(segment for segment in self.segments if segment.device == device)
        )

    @property
    def untold_bytes(self) -> int:
        """Free bytes pinned by blocks from before the history, or of autograd's threads."""
        return sum(segment.free_bytes for segment in self._pinned.get(None, ()))

    @property
    def _pinned(self) -> dict[Site | None, list[Segment]]:
        return grouped(
            (each.pin.site, each)
            for each in self.segments
            if each.pin is not None and each.free_bytes and not each.expandable
        )

    def pins(self) -> list[Pin]:
        """Lines that pin partly free segments, most first. Each segment is told to one line."""
        pins = [Pin(site, tuple(each)) for site, each in self._pinned.items() if site is not None]
        return sorted(pins, key=lambda pin: pin.free_bytes, reverse=True)


def _segments(data: SnapshotData, evidence: Evidence) -> tuple[Segment, ...]:
    origins = origins_of(evidence)
    return tuple(
        Segment(
            size=int(segment["total_size"]),
            blocks=tuple(_block(block, origins) for block in segment["blocks"]),
            expandable=bool(segment.get("is_expandable")),
            device=int(segment.get("device", 0)),
        )
        for segment in data.segments
    )


def _block(block: Event, origins: Origins) -> SegmentBlock:
    live = block["state"] != FREE
    return SegmentBlock(
        int(block["size"]), live, origins.site(block.get("frames") or ()) if live else None
    )


class Origins:
    """Which line of the user's allocated a block. Blocks of one place are looked at once."""

    def __init__(self, evidence: Evidence) -> None:
        self._recording = evidence.recording
        self._user_files = evidence.get(Source).texts
        self._known: dict[int, Site | None] = {}
        self._files: dict[str, int] = {}
        self._kinds: dict[int, int] = {}

    def site(self, frames: Any) -> Site | None:
        """The innermost frame of the user's: in a recorded source, else outside any library."""
        known = id(frames)  # the snapshot stays alive while it is read
        if known not in self._known:
            found = next(self._own(frames), None)
            self._known[known] = self._recording.site_at(*found) if found is not None else None
        return self._known[known]

    def stack(self, frames: Any) -> tuple[str, ...]:
        """The frames like that, innermost first, as ``file:line function``."""
        own = islice(self._own(frames), STACK_SHOWN)
        return tuple(f"{self._recording.relative(file)}:{line} {name}" for file, line, name in own)

    def _own(self, frames: Any) -> Iterator[tuple[str, int, str]]:
        found = list(self._from(frames, RECORDED)) if self._user_files else []
        yield from found or self._from(frames, OUTSIDE)

    def _from(self, frames: Any, least: int) -> Iterator[tuple[str, int, str]]:
        kinds = self._kinds
        for frame in frames:
            kind = kinds.get(id(frame))
            if kind is None:  # thousands of stacks share a few hundred frames
                kind = kinds[id(frame)] = self._kind(frame)
            if kind >= least:
                yield frame["filename"], frame["line"], frame["name"]

    def _kind(self, frame: Event) -> int:
        file, line, name = frame["filename"], frame["line"], frame["name"]
        if not (isinstance(file, str) and isinstance(line, int) and isinstance(name, str)):
            raise TypeError("a frame is no file, line and name")
        kind = self._files.get(file)
        if kind is None:
            recorded = self._recording.relative(file) in self._user_files
            kind = self._files[file] = (
                RECORDED if recorded else OUTSIDE if _outside(file) else LIBRARY
            )
        return kind


def origins_of(evidence: Evidence) -> Origins:
    """One for all tables of a recording's snapshot: every stack is looked through once."""
    return evidence.once(Origins)


def _outside(file: str) -> bool:
    plain = file.replace("\\", "/")
    return plain.startswith("<ipython") or (
        plain.endswith(".py") and not any(mark in plain for mark in LIBRARY_MARKS)
    )
