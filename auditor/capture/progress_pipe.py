"""What the recording child tells its parent while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from os import getpid, write  # ours also where a target puts its own in os
from time import monotonic

from auditor.recordings.writer import identity_of


class ProgressPipe:
    """Tells the parent about passes and steps, at most twenty times a second.

    Lines: ``pass done steps``; ``= pass:steps pass:steps ...`` for all passes of the run when that
    is known or changes; ``! sentence`` when the recording can be written no more; ``.`` when all is
    written. A pipe that the target closed is not written to: its number may belong to a file of the
    target's by then. Nor is it by a process that the target forked.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._identity = None if fd is None else identity_of(fd)
        self._process = getpid()
        self._last = 0.0

    def __call__(self, name: str, done: int, steps: int) -> None:
        """Say that ``done`` of ``steps`` steps of a pass are complete."""
        now = monotonic()
        if self._fd is None or (0 < done < steps and now - self._last < 0.05):
            return
        self._last = now
        self._write(f"{name} {done} {steps}")

    def outline(self, passes: Iterable[tuple[str, int]]) -> None:
        """Say which passes the run has, done and to come, and how many steps each."""
        self._write("= " + " ".join(f"{name}:{steps}" for name, steps in passes))

    def lost(self, sentence: str) -> None:
        """Say that the recording can be written no more."""
        self._write("! " + " ".join(sentence.split()))

    def done(self) -> None:
        """Say that all is written: what the process does from now on is the target's own (threads,
        atexit handlers).
        """
        self._write(".")

    def _write(self, line: str) -> None:
        if self._fd is None:
            return
        if getpid() != self._process or identity_of(self._fd) != self._identity:
            self._fd = None
            return
        try:
            write(self._fd, f"{line}\n".encode())
        except OSError:
            self._fd = None
