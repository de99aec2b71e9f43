"""A memory snapshot without a recording around it: what ``audit analyze snapshot.pickle`` judges."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from auditor.recording import SCHEMA, Recording

PICKLE, GZIP = b"\x80", b"\x1f\x8b"
"""First bytes of a pickle (protocol 2 and later, torch's), and of a gzipped file."""


def is_pickle(path: Path) -> bool:
    """Whether the file's content, gzipped or not, begins as a pickle does: its name does not count."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
        with gzip.open(path) if packed else path.open("rb") as stream:
            return bool(stream.read(1) == PICKLE)
    except (OSError, EOFError, zlib.error):
        return False


class SnapshotRecording(Recording):
    """A snapshot that stands alone, from wherever: a recording without any part, judged by what a snapshot shows."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self.manifest = {
            "schema": SCHEMA,
            "target": path.name,
            "cwd": "",
            "device": "snapshot",
            "outcome": "completed",
            "sources": {},
            "parts": [],
            "passes": [],
            "recorded_at": "",
            "environment": {},
            "warnings": [],
        }
        self._path = path

    @property
    def trace(self) -> Path | None:
        """None: a snapshot holds no trace."""
        return None

    @property
    def snapshot(self) -> Path | None:
        """The file itself."""
        return self._path

    def inside(self, name: str) -> Recording | None:
        """Nothing lies inside a file."""
        return None

    def has(self, part: str) -> bool:
        """Nothing was recorded beside the snapshot."""
        return False

    def rows(self, part: str) -> list[dict[str, object]]:
        """None, whatever lies beside the file."""
        return []
