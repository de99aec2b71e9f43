"""Commands of ``audit`` in child processes, which outlive a tool's call and end with the server."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from auditor.runs.leftover_processes import Keeper

_OUTPUT = 1 << 20
"""Characters of stdout that are kept of a child."""

_LINES, _WIDTH = 40, 400
"""Lines of stderr that are kept of a child, and characters of each."""

KEPT = 20
"""Runs that are remembered after their end."""

GRACE_S = 1.0
"""Seconds that children have to end when the server does: clients kill it after two."""


class Child:
    """One command. ``words`` are what follows ``audit``; it runs in the folder ``root``.

    Raises ``OSError`` if it cannot be started.
    """

    def __init__(self, run: str, words: Sequence[str], root: Path) -> None:
        self.run = run
        self.words = tuple(words)
        self.began = time.monotonic()
        self.lines: deque[tuple[int, str]] = deque(maxlen=_LINES)
        self._out: list[str] = []
        self._process = subprocess.Popen(
            # -P: a module auditor.py or types.py of the project must not take the place of another
            [sys.executable, "-P", "-m", "auditor", *words],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self._keeper = Keeper(self._process.pid)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read_out, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_lines, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def ended(self) -> int | None:
        """The exit code; None while it runs."""
        code = self._process.poll()
        if code is not None:
            for reader in self._readers:
                reader.join(GRACE_S)
            self._keeper.release()
        return code

    @property
    def out(self) -> str:
        """What it has written to stdout."""
        return "".join(self._out)

    @property
    def seconds(self) -> float:
        """Since its start."""
        return time.monotonic() - self.began

    def ask(self) -> None:
        """Ask it to end: it still writes a report on what was recorded."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and what it started; the recording process has a :class:`Keeper` of its own."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._keeper.release()

    def _read_out(self, stream: IO[str]) -> None:
        room = _OUTPUT
        for block in iter(lambda: stream.read(4096), ""):
            self._out.append(block[:room])
            room -= len(block[:room])

    def _read_lines(self, stream: IO[str]) -> None:
        lines = (line.strip() for line in iter(lambda: stream.readline(_WIDTH), ""))
        self.lines.extend(enumerate(filter(None, lines), 1))


class Children:
    """The runs of a server, by number."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: dict[str, Child] = {}
        self._number = 0

    def start(self, words: Sequence[str]) -> Child:
        """Start a command."""
        self._number += 1
        child = Child(str(self._number), words, self.root)
        self.runs[child.run] = child
        over = [run for run, each in self.runs.items() if each.ended() is not None]
        for run in over[: max(0, len(self.runs) - KEPT)]:
            del self.runs[run]
        return child

    def running(self) -> tuple[Child, ...]:
        """Those that have not ended."""
        return tuple(each for each in self.runs.values() if each.ended() is None)

    def end(self) -> None:
        """End all: asked first, killed after :data:`GRACE_S`."""
        left = self.running()
        for child in left:
            child.ask()
        until = time.monotonic() + GRACE_S
        while time.monotonic() < until and any(each.ended() is None for each in left):
            time.sleep(0.05)
        for child in left:
            child.kill()
