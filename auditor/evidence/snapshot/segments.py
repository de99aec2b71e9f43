"""The CUDA allocator's segments and blocks, and which live block keeps which segment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

from auditor.evidence.snapshot.file import Event, SnapshotData, snapshot_of
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table
from auditor.model import Site

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
class Block:
    """A stretch of a segment. ``live`` also while its free is pending; ``site`` allocated it."""

    size: int
    live: bool
    site: Site | None = None


@dataclass(frozen=True)
class Segment:
    """Memory obtained from the device by one cudaMalloc. It can only be given back whole."""

    size: int
    blocks: tuple[Block, ...]
    expandable: bool = False
    device: int = 0

    @property
    def free_bytes(self) -> int:
        """Bytes in it that no tensor uses."""
        return sum(block.size for block in self.blocks if not block.live)

    @property
    def pin(self) -> Block | None:
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
    def _blocks(self) -> list[Block]:
        return [
            block
            for segment in self.segments
            for block in segment.blocks
            if block.live and block.site == self.site
        ]


@dataclass(frozen=True)
class Snapshot(Table):
    """Segments of all devices at one moment: the first out-of-memory error if the run ended by one,
    else the end of a step.
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    segments: tuple[Segment, ...] = ()
    at_oom: bool = False

    @classmethod
    def build(cls, evidence: Evidence) -> Snapshot:
        """From the snapshot file. Raises :class:`NotLooked` without a plain one."""
        data = snapshot_of(evidence)
        return cls(_segments(data, evidence), data.at_oom)

    @property
    def reserved(self) -> int:
        """Bytes obtained from the device."""
        return sum(segment.size for segment in self.segments)

    def on(self, device: int) -> Snapshot:
        """The part of one device."""
        return replace(
            self, segments=tuple(segment for segment in self.segments if segment.device == device)
        )

    @property
    def untold_bytes(self) -> int:
        """Free bytes pinned by blocks of unknown origin: allocated before the history was recorded,
        or by autograd's threads.
        """
        return sum(
            segment.free_bytes
            for segment in self._pinned
            if segment.pin is not None and segment.pin.site is None
        )

    @property
    def _pinned(self) -> list[Segment]:
        return [
            each
            for each in self.segments
            if each.pin is not None and each.free_bytes and not each.expandable
        ]

    def pins(self) -> list[Pin]:
        """Lines that pin partly free segments, most first. Each segment is told to one line."""
        by_site: dict[Site, list[Segment]] = defaultdict(list)
        for segment in self._pinned:
            if segment.pin is not None and segment.pin.site is not None:
                by_site[segment.pin.site].append(segment)
        pins = [Pin(site, tuple(segments)) for site, segments in by_site.items()]
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


def _block(block: Event, origins: Origins) -> Block:
    live = block["state"] != FREE
    return Block(
        int(block["size"]),
        live,
        origins.site(block.get("frames") or ()) if live else None,
    )


class Origins:
    """Which line of the user's allocated a block. Blocks of one place share their list of frames:
    each is looked at once.
    """

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
