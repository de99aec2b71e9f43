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

AT_OOM = ("oom_snapshot.pickle", "oom_snapshot.pickle.gz")
AT_END = ("snapshot.pickle", "snapshot.pickle.gz")
LIBRARY_MARKS = ("/site-packages/", "/dist-packages/", "/lib/python", "/torch/", "/torchinductor_")
FREE = "inactive"
BLOCK_LIMIT = 2_000_000
"""Blocks that are read at most: a real snapshot of 72 GB has a few thousand; one written to hang us names one list again and again."""


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
    """Segments of all devices at one moment: the first out-of-memory error if the run ended by one, else the end of a step.

    Torch also reports errors that it gets over by itself (cuDNN asks for less workspace): those do not count.
    """

    parts: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    segments: tuple[Segment, ...] = ()
    at_oom: bool = False

    @classmethod
    def build(cls, recording: Recording) -> Snapshot:
        """From the recording's snapshot file. Raises :class:`NotLooked` if there is none, or if it is not plain data."""
        names = AT_OOM + AT_END if recording.manifest.get("outcome") == "oom" else AT_END + AT_OOM
        path = next((recording.folder / name for name in names if (recording.folder / name).is_file()), None)
        if path is None:
            raise NotLooked("no CUDA memory snapshot was recorded")
        try:
            data = load_plain(path)
        except RefusedPickle as refused:
            raise NotLooked(str(refused)) from None
        return cls(_segments(data, recording), path.name in AT_OOM)

    @property
    def reserved(self) -> int:
        """Bytes obtained from the device."""
        return sum(segment.size for segment in self.segments)

    @property
    def untold_bytes(self) -> int:
        """Free bytes pinned by blocks of unknown origin: allocated before the history was recorded, or by autograd's threads."""
        return sum(segment.free_bytes for segment in self._pinned if segment.pin is not None and segment.pin.site is None)

    @property
    def _pinned(self) -> list[Segment]:
        return [each for each in self.segments if each.pin is not None and each.free_bytes and not each.expandable]

    def pins(self) -> list[Pin]:
        """Lines that pin partly free segments, those that pin most first. Each segment is told to one line."""
        by_site: dict[Site, list[Segment]] = defaultdict(list)
        for segment in self._pinned:
            if segment.pin is not None and segment.pin.site is not None:
                by_site[segment.pin.site].append(segment)
        pins = [Pin(site, tuple(segments)) for site, segments in by_site.items()]
        return sorted(pins, key=lambda pin: pin.free_bytes, reverse=True)


def _segments(data: Any, recording: Recording) -> tuple[Segment, ...]:
    """Segments from torch's snapshot schema, ``_snapshot()`` or the bare list of ``memory_snapshot()``.

    Raises :class:`NotLooked` where the data does not have that shape.
    """
    origins = Origins(recording)
    try:
        listed = data if isinstance(data, list) else data["segments"]
        if sum(len(segment["blocks"]) for segment in listed) > BLOCK_LIMIT:
            raise NotLooked(f"the memory snapshot has more than {BLOCK_LIMIT} blocks")
        return tuple(
            Segment(
                size=int(segment["total_size"]),
                blocks=tuple(_block(block, origins) for block in segment["blocks"]),
                expandable=bool(segment.get("is_expandable")),
            )
            for segment in listed
        )
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise NotLooked(f"the memory snapshot has another layout than torch's: {type(error).__name__}") from None


def _block(block: Mapping[str, Any], origins: Origins) -> Block:
    live = block["state"] != FREE
    return Block(int(block["size"]), live, origins.site(block.get("frames") or ()) if live else None)


class Origins:
    """Which line of the user's allocated a block. Blocks of one place share their list of frames: each is looked at once."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._user_files = Source.build(recording).texts
        self._known: dict[int, Site | None] = {}

    def site(self, frames: Any) -> Site | None:
        """The innermost frame that looks like the user's: a recorded source, else a file outside any library."""
        known = id(frames)  # the snapshot stays alive while it is read
        if known not in self._known:
            self._known[known] = self._find(frames)
        return self._known[known]

    def _find(self, frames: Any) -> Site | None:
        places = [(frame["filename"], frame["line"], frame["name"]) for frame in frames]
        if not all(isinstance(file, str) and isinstance(line, int) and isinstance(name, str) for file, line, name in places):
            raise TypeError("a frame is no file, line and name")
        own = [place for place in places if self._recording.relative(place[0]) in self._user_files]
        outside = [p for p in places if p[0].endswith(".py") and not any(mark in p[0] for mark in LIBRARY_MARKS)]
        found = next(iter(own or outside), None)
        return self._recording.site_at(*found) if found is not None else None
