"""What the flight recorder's dumps of a job say: the collectives that each rank called, with their
lines and states.

torch/csrc/distributed/c10d/FlightRecorder.hpp writes them (versions 2.2 to 2.10 of the format, torch
2.4 and later); read as data, never unpickled as objects.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from auditor.evidence.snapshot.unpickle import RefusedPickle, load_plain
from auditor.evidence.table import Evidence
from auditor.recordings.standalone import DumpsRecording, is_pickle
from auditor.rule import NotLooked
from auditor.typed_reading import convert

SIZE_LIMIT = 1 << 28
"""Bytes of one dump: 2,000 calls (torch's default) with their stacks are 2 MB."""


class DumpedCall(msgspec.Struct, frozen=True):
    """One collective or point-to-point operation of a rank. Sizes are in numbers, times in ns."""

    profiling_name: str
    state: str
    collective_seq_id: int
    process_group: tuple[str, str] = ("", "")
    """Name and description."""
    frames: list[dict[str, Any]] = []
    input_sizes: list[list[int]] = []
    is_p2p: bool = False
    time_created_ns: int = 0

    @property
    def what(self) -> str:
        """``all_reduce``, without the backend's name."""
        return self.profiling_name.rpartition(":")[2]

    @property
    def completed(self) -> bool | None:
        """Whether the backend saw it end; None for gloo's, whose state stays as it was."""
        return None if self.profiling_name.startswith("gloo:") else self.state == "completed"


class DumpedGroup(msgspec.Struct, frozen=True):
    """A process group as a rank knows it."""

    name: str = ""
    desc: str = ""
    ranks: str | list[int] = ""

    @property
    def members(self) -> frozenset[int]:
        """The ranks in it; empty where that is not said."""
        if isinstance(self.ranks, list):
            return frozenset(self.ranks)
        words = self.ranks.strip("[] ").split(",")
        return frozenset(int(word) for word in words if word.strip().isdecimal())


class Dump(msgspec.Struct, frozen=True):
    """The dump of one rank."""

    entries: list[DumpedCall] = []
    pg_config: dict[str, DumpedGroup] = {}


def dumps_of(evidence: Evidence) -> dict[int, Dump]:
    """The dumps by rank, read once. Raises :class:`NotLooked` where there are none, or one has
    another layout than torch's.
    """
    return evidence.once(_load)


def _load(evidence: Evidence) -> dict[int, Dump]:
    recording = evidence.recording
    if not isinstance(recording, DumpsRecording):
        raise NotLooked("no dump of torch's flight recorder was given")
    return {rank: _read(path) for rank, path in sorted(recording.dumps.items())}


def _read(path: Path) -> Dump:
    try:
        content = load_plain(path, SIZE_LIMIT) if is_pickle(path) else _json(path)
        return convert(content, Dump)
    except RefusedPickle as refused:
        raise NotLooked(str(refused)) from None
    except (ValueError, RecursionError) as error:
        said = str(error).partition("\n")[0][:200]
        raise NotLooked(f"{path.name} is no dump of torch's flight recorder: {said}") from None


def _json(path: Path) -> Any:
    if path.stat().st_size > SIZE_LIMIT:
        raise NotLooked(f"{path.name} is larger than {SIZE_LIMIT} bytes")
    return json.loads(path.read_bytes())
