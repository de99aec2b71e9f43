"""What takes the place of a recording: a file from wherever, judged alone."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from auditor.model.devices import Input
from auditor.recordings.folder import SCHEMA, Recording

if TYPE_CHECKING:
    from auditor.timeline import Fleet


class StandaloneRecording(Recording):
    """A recording without parts; files beside it are not looked at. ``what``: the file's kind."""

    def __init__(
        self, folder: Path, target: str, what: Input, warnings: tuple[str, ...] = ()
    ) -> None:
        manifest = {
            "schema": SCHEMA,
            "target": target,
            "cwd": "",
            "device": what,
            "outcome": "completed",
            "sources": {},
            "parts": [],
            "passes": [],
            "recorded_at": "",
            "environment": {},
            "warnings": list(warnings),
        }
        super().__init__(folder, manifest)

    @property
    def trace(self) -> Path | None:
        """None, unless the file is one."""
        return None

    @property
    def snapshot(self) -> Path | None:
        """None, unless the file is one."""
        return None

    def inside(self, name: str) -> Recording | None:
        """Nothing lies inside a file."""
        return None

    def part_file(self, part: str) -> Path | None:
        """None, whatever lies beside the file."""
        return None


# -- standalone snapshot ---------------------------------------------------------------------------
# A memory snapshot without a recording around it: what ``audit analyze snapshot.pickle``
# judges.


PICKLE, GZIP = b"\x80", b"\x1f\x8b"
"""First bytes of a pickle (protocol 2 and later, torch's), and of a gzipped file."""


def is_pickle(path: Path) -> bool:
    """Whether the content, gzipped or not, begins as a pickle does: the name does not count."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP
        with gzip.open(path) if packed else path.open("rb") as stream:
            return bool(stream.read(1) == PICKLE)
    except (OSError, EOFError, zlib.error):
        return False


NAMES = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz")
"""What a snapshot's name ends in, in a folder. torch's own examples use the first two."""


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


# -- standalone trace ------------------------------------------------------------------------------
# A trace without a recording around it: what ``audit analyze trace.json.gz`` judges.


class TraceRecording(StandaloneRecording):
    """A trace that stands alone, from wherever: judged by what a trace shows."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent, path.name, "trace")
        self._path = path

    @property
    def trace(self) -> Path | None:
        """The file itself."""
        return self._path


WAITED_FOR = "which waits least in collectives: the others wait for it"
SLOWEST = "which has the longest steps"


class RankedTraces(TraceRecording):
    """The traces of a job's ranks: judged on the rank that the others wait for, with the facts of
    all beside it.

    The rank that waits least in collectives is the one that comes last to them; where there are
    none, it is the slowest.
    """

    def __init__(self, folder: Path, ranks: Fleet) -> None:
        judged = ranks.least_waiting or ranks.slowest
        super().__init__(Path(judged.row.file))
        self.ranks = ranks
        self.manifest |= {
            "target": f"{folder.name or folder.resolve().name}/",
            "world_size": ranks.world_size,
            "judged": f"rules were asked of rank {judged.row.rank}, "
            f"{WAITED_FOR if ranks.least_waiting else SLOWEST}",
            "warnings": list(_rank_warnings(ranks)),
        }
        self.home = folder


def _rank_warnings(ranks: Fleet) -> Iterator[str]:
    yield from ranks.warnings
    for unread in ranks.unread:
        yield f"{Path(unread.path).name} is left out: {unread.reason}"
    if ranks.missing:
        shown = ", ".join(str(rank) for rank in ranks.missing[:8]) + (
            "..." if len(ranks.missing) > 8 else ""
        )
        some = f"rank {shown} is" if len(ranks.missing) == 1 else f"ranks {shown} are"
        yield (
            f"{some} missing: {len(ranks.ranks)} of {ranks.world_size} traces are there, and the "
            "late rank may be a missing one"
        )
    if len(ranks.ranks) > 1 and ranks.late is None:
        yield (
            "the ranks share no collective: their clocks cannot be aligned, and no rank can be "
            "called late"
        )
