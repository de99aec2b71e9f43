"""A memory snapshot without a recording around it: what ``audit analyze snapshot.pickle``
judges.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from auditor.recordings.standalone import StandaloneRecording

PICKLE, GZIP = b"\x80", b"\x1f\x8b"
"""First bytes of a pickle (protocol 2 and later, torch's), and of a gzipped file."""


def is_pickle(path: Path) -> bool:
    """Whether the file's content, gzipped or not, begins as a pickle does: its name does not
    count.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
        with gzip.open(path) if packed else path.open("rb") as stream:
            return bool(stream.read(1) == PICKLE)
    except (OSError, EOFError, zlib.error):
        return False


NAMES = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz")
"""What the name of a snapshot ends in, where a folder is looked through. torch's own examples use
the first two.
"""


def snapshot_files(folder: Path) -> list[Path]:
    """Files in a folder that may be snapshots: pickles by name and by content."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.name.endswith(NAMES) and path.is_file() and is_pickle(path)
    )


class SnapshotRecording(StandaloneRecording):
    """A snapshot that stands alone, from wherever: judged by what a snapshot shows."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent, path.name, "snapshot")
        self._path = path

    @property
    def snapshot(self) -> Path | None:
        """The file itself."""
        return self._path

    @property
    def name(self) -> str:
        """The file's name without what tells its format."""
        return self._path.name.removesuffix(".gz").removesuffix(".pickle").removesuffix(".pkl")
