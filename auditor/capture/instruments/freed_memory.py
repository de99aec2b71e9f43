"""Free memory between the program's tensors goes back to the system while instruments run.

What they keep of each operator (a profiler's event, a node of the flow of values: some hundred
bytes) takes its place in a block that a large tensor has left; the next tensor of that size no
longer fits there, and the heap grows by one. Nothing of it is in use, but a step with many large
temporaries is soon several times as large as it was (benchmarks/pass_memory.py).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

import psutil

from auditor.capture.instruments.kept_open import KeptOpen

PLAIN = ("warmup", "quiet", "anomaly_off", "eager_held", "compiled_again")
"""Passes whose steps are timed as they are: their peak is the program's own."""

SHARE, MORE = 1.15, 64 << 20
"""How much larger than that peak the process may be before what is free is given back."""

ROOM_SHARE, ROOM_MORE = 0.25, 160 << 20
"""Of that peak, and beside it: what an instrument may hold that the program does not."""

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class FreedMemory:
    """Looked at between operators and between steps of passes with instruments."""

    def __init__(self) -> None:
        self._statm: KeptOpen | None = None
        self._process = psutil.Process()
        self._trim = _trimmer()
        self._most: float | None = None
        """Resident bytes beyond which is given back; None: nobody said yet."""
        self.room = float(ROOM_MORE)
        """Bytes that an instrument may hold at once."""

    def begin(self, pass_name: str) -> None:
        """A step of this pass begins."""
        if pass_name not in PLAIN and self._most is None:
            peak = _peak()
            self._most = SHARE * peak + MORE
            self.room = ROOM_SHARE * peak + ROOM_MORE

    def look(self) -> None:
        """Give back what is free, if the process has become larger than it may."""
        if self._most is None or self._trim is None or self.resident() <= self._most:
            return
        self._trim(0)
        self._most = max(self._most, 1.1 * self.resident())  # what stays is in use

    def resident(self) -> int:
        """Bytes of the process that are resident."""
        if self._statm is None:
            self._statm = KeptOpen("/proc/self/statm")
        words = self._statm.words()
        return int(words[1]) * _PAGE if len(words) > 1 else int(self._process.memory_info().rss)

    def close(self) -> None:
        """Close what is open. May be called twice."""
        if self._statm is not None:
            self._statm.close()


def _trimmer() -> Callable[[int], int] | None:
    """Glibc's ``malloc_trim`` gives back whole pages inside the heap as well; others have none."""
    try:
        return ctypes.CDLL(None).malloc_trim  # type: ignore[no-any-return]
    except (AttributeError, OSError, TypeError):
        return None


def _peak() -> int:
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            sizes = dict(line.split(":", 1) for line in status)
        return int(sizes["VmHWM"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return 1 << 62
