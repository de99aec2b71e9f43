"""Functions that read whole files: how often one file is read for the same batch.

A worker that is spawned imports this module: it needs torch and nothing else of the recorder.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

READERS = {
    "numpy": ("load", "loadtxt", "genfromtxt", "fromfile"),
    "torch": ("load",),
    "pandas": ("read_csv", "read_parquet", "read_pickle", "read_json", "read_feather"),
    "json": ("load",),
    "pickle": ("load",),
}
"""Names of such functions, by module."""

PARTS = frozenset(
    {"mmap_mode", "mmap", "count", "offset", "nrows", "skiprows", "chunksize", "iterator",
     "usecols", "columns", "filters", "max_rows", "skip_header"}
)  # fmt: skip
"""Keywords with which no more than a part is read, or nothing yet."""

LAZY = frozenset({"NpzFile"})
"""Results that read later."""


@dataclass
class FilesRead:
    """What one place read in one batch: files by path, and time inside."""

    name: str
    us: float = 0.0
    files: Counter[str] = field(default_factory=Counter)

    @property
    def n(self) -> int:
        """Reads."""
        return self.files.total()

    @property
    def again(self) -> int:
        """Reads of a file that was read before."""
        return self.n - len(self.files)

    def row(self) -> dict[str, Any]:
        """What is written down of it."""
        size, path = self.largest
        return {
            "name": self.name,
            "n": self.n,
            "again": self.again,
            "us": self.us,
            "batches": 1,
            "bytes": size,
            "path": path,
        }

    @property
    def largest(self) -> tuple[int, str]:
        """Size and path of the largest file that was read more than once."""
        return max(
            ((_size(path), path) for path, often in self.files.items() if often > 1),
            default=(0, ""),
        )


class FileReads:
    """Counts and times such calls by place; ``here`` names the caller's (None: not counted)."""

    def __init__(self, here: Callable[[], Hashable | None]) -> None:
        self._here = here
        self._inside = False
        self._seen: dict[tuple[Hashable, str], FilesRead] = {}

    def watch(self, replace: Callable[[Any, str, Any], None]) -> None:
        """Put functions of ours in place of theirs, by ``replace(module, name, function)``. Modules
        that are not imported are left alone.
        """
        for module, names in READERS.items():
            for name in names:
                original = getattr(sys.modules.get(module), name, None)
                if callable(original):
                    replace(sys.modules[module], name, self._timed(original, f"{module}.{name}"))

    def taken(self) -> dict[Hashable, list[FilesRead]]:
        """What was seen since the last call."""
        seen, self._seen = self._seen, {}
        by_place: defaultdict[Hashable, list[FilesRead]] = defaultdict(list)
        for (place, _), read in seen.items():
            by_place[place].append(read)
        return dict(by_place)

    def _timed(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def read(*args: Any, **kwargs: Any) -> Any:
            path = None if self._inside else _whole(args, kwargs)
            place = self._here() if path is not None else None
            if path is None or place is None:
                return original(*args, **kwargs)
            self._inside = True
            start = time.perf_counter_ns()
            try:
                result = original(*args, **kwargs)
            finally:
                self._inside = False
            if type(result).__name__ not in LAZY:
                seen = self._seen.setdefault((place, name), FilesRead(name))
                seen.files[path] += 1
                seen.us += (time.perf_counter_ns() - start) / 1e3
            return result

        return read


def _whole(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The path of the file that is read as a whole; None of a part, or of what is no file."""
    if len(args) > 1 or any(kwargs.get(name) for name in PARTS):
        return None
    file: Any = args[0] if args else next(iter(kwargs.values()), None)
    with contextlib.suppress(Exception):  # the user's objects
        if isinstance(file, (str, bytes, os.PathLike)):
            return os.fsdecode(file)
        if file.tell() == 0 and isinstance(file.name, str):
            return str(file.name)
    return None


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
