"""The CUDA allocator's segments and blocks, from a memory snapshot, and which live block keeps which segment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from auditor.evidence.source import Source
from auditor.evidence.table import Table
from auditor.evidence.unpickle import RefusedPickle, load_plain
from auditor.model import Site
from auditor.recording import Recording
from auditor.rule import NotLooked

NAMES = ("oom_snapshot.pickle", "oom_snapshot.pickle.gz", "snapshot.pickle", "snapshot.pickle.gz")
LIBRARY_MARKS = ("/site-packages/", "/dist-packages/", "/lib/python", "/torch/")
FREE = "inactive"


@dataclass(frozen=True)
class Block:
    """A stretch of a segment. ``live`` also while its free is pending; ``site`` is the user line that allocated it."""

    size: int
    live: bool
    site: Site | None = None


@dataclass(frozen=True)
class Segment:
    """Memory obtained from the device by one cudaMalloc. It can only be given back whole."""

    size: int
    blocks: tuple[Block, ...]
    expandable: bool = False

    @property
    def free_bytes(self) -> int:
        """Bytes in it that no tensor uses."""
        return sum(block.size for block in self.blocks if not block.live)

    @property
    def pin(self) -> Block | None:
        """The largest live block: without it and its like the segment could be given back."""
        return max((block for block in self.blocks if block.live), key=lambda block: block.size, default=None)


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
    def _blocks(self) -> list[Block]:
        return [block for segment in self.segments for block in segment.blocks if block.live and block.site == self.site]


@dataclass(frozen=True)
class Snapshot(Table):
    """Segments of all devices at one moment: the first out-of-memory error if there was one, else the end of a step."""

    parts: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    segments: tuple[Segment, ...] = ()
    at_oom: bool = False

    @classmethod
    def build(cls, recording: Recording) -> Snapshot:
        """From the recording's snapshot file. Raises :class:`NotLooked` if there is none, or if it is not plain data."""
        path = next((recording.folder / name for name in NAMES if (recording.folder / name).is_file()), None)
        if path is None:
            raise NotLooked("no CUDA memory snapshot was recorded")
        try:
            data = load_plain(path)
        except RefusedPickle as refused:
            raise NotLooked(str(refused)) from None
        return cls(_segments(data, recording), path.name.startswith("oom"))

    @property
    def reserved(self) -> int:
        """Bytes obtained from the device."""
        return sum(segment.size for segment in self.segments)

    def pins(self) -> list[Pin]:
        """Lines that pin partly free segments, those that pin most first. Each segment is told to one line."""
        by_site: dict[Site, list[Segment]] = defaultdict(list)
        for segment in self.segments:
            pin = segment.pin
            if pin is not None and pin.site is not None and segment.free_bytes and not segment.expandable:
                by_site[pin.site].append(segment)
        pins = [Pin(site, tuple(segments)) for site, segments in by_site.items()]
        return sorted(pins, key=lambda pin: pin.free_bytes, reverse=True)


def _segments(data: Any, recording: Recording) -> tuple[Segment, ...]:
    """Segments from torch's snapshot schema. Raises :class:`NotLooked` where it does not have that shape."""
    user_files = Source.build(recording).texts
    try:
        return tuple(
            Segment(
                size=int(segment["total_size"]),
                blocks=tuple(_block(block, recording, user_files) for block in segment["blocks"]),
                expandable=bool(segment.get("is_expandable")),
            )
            for segment in data["segments"]
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotLooked(f"the memory snapshot has another layout than torch's: {type(error).__name__} {error}") from None


def _block(block: Mapping[str, Any], recording: Recording, user_files: Mapping[str, str]) -> Block:
    live = block["state"] != FREE
    return Block(int(block["size"]), live, _site(block.get("frames") or (), recording, user_files) if live else None)


def _site(frames: Any, recording: Recording, user_files: Mapping[str, str]) -> Site | None:
    """The innermost frame that looks like the user's: a recorded source, else a file outside any library."""
    places = [(str(frame["filename"]), int(frame["line"]), str(frame["name"])) for frame in frames]
    own = [place for place in places if recording.relative(place[0]) in user_files]
    outside = [place for place in places if place[0].endswith(".py") and not any(mark in place[0] for mark in LIBRARY_MARKS)]
    found = next(iter(own or outside), None)
    return recording.site_at(*found) if found is not None else None
