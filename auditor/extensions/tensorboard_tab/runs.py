"""Which runs a folder holds, and which of their files may be shown: none outside it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPORT = "report.json"
PAGE = "report.html"
RECORDING = "recording"
EXPORTED = "tensorboard"
TRACE = "trace.json.gz"
DEPTH = 4
"""Folders below the root that are looked into."""

LIMIT = 1000
"""Runs that are listed at most."""


@dataclass(frozen=True)
class RunFolder:
    """A folder that an audit wrote. ``name``: its path below ``root``, or the root's own."""

    name: str
    folder: Path
    root: Path

    def report(self) -> Path | None:
        """report.json."""
        return self._inside(self.folder / REPORT)

    def page(self) -> Path | None:
        """report.html."""
        return self._inside(self.folder / PAGE)

    def trace(self) -> Path | None:
        """The profiler's trace as it was recorded, else the copy for TensorBoard."""
        recorded = self._inside(self.folder / RECORDING / TRACE)
        if recorded is not None:
            return recorded
        exported = sorted((self.folder / EXPORTED).glob("*/*.pt.trace.json*"))
        return next((path for path in map(self._inside, exported) if path is not None), None)

    def _inside(self, path: Path) -> Path | None:
        """The file, unless it is none or a link that leads out of the root."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):
            return None
        return real if real.is_file() and real.is_relative_to(self.root.resolve()) else None


def runs_in(root: Path) -> tuple[RunFolder, ...]:
    """The runs at and below ``root``, the newest report first."""
    return tuple(sorted(_found(root), key=lambda run: (-_written(run.folder / REPORT), run.name)))


def _written(report: Path) -> float:
    """When, in seconds; of a link, when that was made: what it leads to may lie anywhere."""
    try:
        return report.lstat().st_mtime
    except OSError:
        return 0.0


def _found(root: Path) -> Iterator[RunFolder]:
    found = 0
    for place, folders, files in os.walk(root):
        folder = Path(place)
        below = folder.relative_to(root)
        if REPORT in files:
            folders.clear()
            yield RunFolder(
                root.resolve().name if folder == root else below.as_posix(), folder, root
            )
            found += 1
        if found >= LIMIT:
            return
        folders[:] = (
            [name for name in folders if not name.startswith(".")]
            if len(below.parts) < DEPTH
            else []
        )
