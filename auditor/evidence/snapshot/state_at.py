"""What lived at one moment of a history: blocks, where each was allocated, segments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from typing import Any, ClassVar

from auditor import amounts
from auditor.allocator import AllocatorSettings
from auditor.evidence.snapshot.file import Event, SnapshotData, snapshot_of
from auditor.evidence.snapshot.history import Allocations, blocks_of, live_at_end
from auditor.evidence.snapshot.segments import Origins, origins_of
from auditor.evidence.table import MALFORMED, Evidence, Table
from auditor.model import Site
from auditor.rule import NotLooked

Frames = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class LiveBlock:
    """A live block. ``born`` is the event that allocated it, -1 before the history; ``stays``:
    still live at the end.
    """

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
        inside = defaultdict(list)
        starts = sorted(self.segments)
        place = 0
        for block in sorted(self.blocks, key=lambda each: each.address):
            while place + 1 < len(starts) and starts[place + 1] <= block.address:
                place += 1
            inside[starts[place] if starts else 0].append(block)
        return max(
            (_gap(start, start + size, inside[start]) for start, size in self.segments.items()),
            default=0,
        )


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
    kept = _frames_at_end(segments)
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


def _frames_at_end(segments: Sequence[Event]) -> dict[int, Frames]:
    """Stacks of the live blocks: torch before 2.1 keeps them in the block's ``history``."""
    return {
        address: block.get("frames")
        or next((h.get("frames") for h in block.get("history") or ()), None)
        or ()
        for address, block in blocks_of(segments)
        if block["state"] != "inactive"
    }


def placed(site: Site) -> str:
    """``trainer.py:152 step``; of a long path its last two parts."""
    parts = PurePath(site.file).parts
    file = site.file if len(parts) <= 2 else "/".join(parts[-2:])
    return f"{file}:{site.line} {site.function}".rstrip()


@dataclass(frozen=True)
class Holder:
    """Live blocks that one line allocated. ``site`` is None where no line of the user's is known.

    ``older`` bytes were allocated before the history began, ``stays`` bytes are still live where it
    ends. ``timed`` is False where there is no history: then nothing is known of how long blocks
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
            else "(no Python frame: made by backward?)"
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
    """Blocks of one line that are live at the end and were born in the first, second and last third
    of the history, in bytes.
    """

    site: Site
    thirds: tuple[int, int, int]
    blocks: int

    @property
    def size(self) -> int:
        """All of them."""
        return sum(self.thirds)


@dataclass(frozen=True)
class NeverFreed(Table):
    """Lines with such blocks in every third, the largest first; empty where there is no history.

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
            return cls(_kept(evidence, course.device, len(course.reserved)))
        except (NotLooked, *MALFORMED):
            return cls()


def _kept(evidence: Evidence, device: int, events: int) -> tuple[NeverFreedLine, ...]:
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
