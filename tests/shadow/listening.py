"""A listener for tests: what crossed, at which line of which file."""

import functools
import inspect
import re
import sys
from collections import Counter

import torch

from auditor.capture.shadow import Crossing, Listener


class Heard(Listener):
    """Keeps every crossing, and the line of ``file`` that it happened at."""

    def __init__(self, file: str = "") -> None:
        self.file = file
        self.crossings: list[Crossing] = []
        self.lines: list[int] = []
        self.limits: list[tuple[str, str]] = []

    def crossing(self, crossing):
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        self.crossings.append(crossing)
        self.lines.append(0 if frame is None else frame.f_lineno)

    def limit(self, operator, reason):
        self.limits.append((operator, reason))

    def forget(self):
        self.crossings.clear()
        self.lines.clear()

    def blocking(self) -> Counter:
        """(line, kind) of what made the host wait."""
        heard = zip(self.lines, self.crossings, strict=True)
        return Counter(
            (line, "h2d" if c.direction == "h2d" else c.kind) for line, c in heard if c.blocking
        )

    def kinds(self) -> list[str]:
        return [crossing.kind for crossing in self.crossings]


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2]]


@functools.cache
def marked(module) -> Counter:
    """(line, kind) of the marks ``#: KIND xN``; ``KIND before 2.13`` is for earlier torch."""
    wanted: Counter = Counter()
    for number, line in enumerate(inspect.getsource(module).splitlines(), 1):
        mark = re.search(r"[^`]#: (.*)", line)
        for part in mark[1].split(",") if mark else ():
            said, _, version = part.strip().partition(" before ")
            if version and _numbers(torch.__version__) >= _numbers(version):
                continue
            kind, _, times = said.partition(" x")
            wanted[number, kind] += int(times or 1)
    return wanted
