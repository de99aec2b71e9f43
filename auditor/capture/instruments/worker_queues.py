"""How long the worker processes of loaders were ready to run while something else had the
processor.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from auditor.capture.instruments.kept_open import KeptOpen

MOST = 8
"""Worker processes of one loader that are asked: reading one takes some 30 us after each step, and
those of one loader wait alike.
"""


class WorkerQueues:
    """The kernel's own count of each thread (``/proc/<pid>/task/<tid>/schedstat``, second number, in
    ns; Documentation/scheduler/sched-stats.rst). Of one worker, the thread counts that waited
    longest: threads that wait at the same time hold a batch up once.
    """

    def __init__(self) -> None:
        self._threads: dict[int, dict[str, KeptOpen]] = {}
        self._told: dict[int, dict[str, int]] = {}

    def longest_us(self, workers: Iterable[int]) -> float | None:
        """The longest that one of these processes waited for a processor since it was asked last,
        or since it began; None where the system tells of none of them.
        """
        waits = [us for pid in list(workers)[:MOST] if (us := self._waited_us(pid)) is not None]
        return max(waits, default=None)

    def close(self) -> None:
        """Close all files, and forget what was told."""
        for pid in list(self._threads):
            self._forget(pid)

    def _waited_us(self, pid: int) -> float | None:
        now = self._read(pid)
        if not now:
            self._forget(pid)  # it ended
            return None
        before, self._told[pid] = self._told.get(pid, {}), now
        return max(max(0, ns - before.get(thread, 0)) for thread, ns in now.items()) / 1e3

    def _read(self, pid: int) -> dict[str, int]:
        try:
            there = os.listdir(f"/proc/{pid}/task")
        except OSError:
            return {}
        files, read = self._threads.setdefault(pid, {}), {}
        for thread in there:
            if thread not in files:
                files[thread] = KeptOpen(f"/proc/{pid}/task/{thread}/schedstat")
            words = files[thread].words()
            if len(words) > 1:
                with contextlib.suppress(ValueError):
                    read[thread] = int(words[1])
        for thread in set(files).difference(there):
            files.pop(thread).close()
        return read

    def _forget(self, pid: int) -> None:
        self._told.pop(pid, None)
        for file in self._threads.pop(pid, {}).values():
            file.close()
