"""A small file of ``/proc`` that is kept open and read again and again."""

from __future__ import annotations

import os

from auditor.recordings.writer import identity_of


class KeptOpen:
    """Reads its whole content anew each time.

    A target that closes all files closes this one, too; its number may then be that of a file of
    the target's, which is neither read nor closed.
    """

    def __init__(self, path: str) -> None:
        try:
            self._number: int | None = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            self._number = None
        self._identity = None if self._number is None else identity_of(self._number)

    def words(self) -> list[bytes]:
        """Its words; none where it cannot be read."""
        if self._number is None or identity_of(self._number) != self._identity:
            return []
        try:
            return os.pread(self._number, 256, 0).split()
        except OSError:
            return []

    def close(self) -> None:
        """Close it. May be called twice."""
        if self._number is not None and identity_of(self._number) == self._identity:
            os.close(self._number)
        self._number = None
