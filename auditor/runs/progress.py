"""Progress of a recording child as its parent sees it: who is told, and whether a step hangs.
Standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from auditor.runs.plan import LEAST_RERUN

HANGS_S, HANGS = 10.0, 20.0
"""A step hangs that takes this long, and so many times as long as the longest before it."""

AGAIN_S, AGAIN = 5.0, 3.0
"""What a second run of the steps before one that hangs may take: the start of a process, and times
what the first run took.
"""


class Progress(Protocol):
    """Told of the run's progress: ``done`` of ``steps`` steps of a pass are complete."""

    def __call__(self, name: str, done: int, steps: int, /) -> None:
        """Once at a pass's begin, then at most twenty times a second."""


@runtime_checkable
class Display(Progress, Protocol):
    """Progress that is shown: it also asks which run this is, and which passes it has."""

    def stage(self, name: str) -> None:
        """A run begins: ``target``, ``second run``, ``run up to the error``, ``replay`` or
        ``rehearsal``; ``again`` is the same one with fewer steps.
        """

    def outline(self, passes: list[tuple[str, int]]) -> None:
        """All passes of the run, done and to come, with their steps; told again when that
        changes.
        """


def silent(name: str, done: int, steps: int) -> None:
    """Progress that nobody is told of."""


def stage(progress: Progress, name: str) -> None:
    """Say which run begins, where that is shown."""
    if isinstance(progress, Display):
        progress.stage(name)


class Pace:
    """How fast a run goes, from what its child tells; ``progress`` is told, too. ``now`` is a clock
    in s.
    """

    def __init__(self, progress: Progress, now: Callable[[], float] = time.monotonic) -> None:
        self._progress = progress
        self._now = now
        self._began = self._last = now()
        self._longest = 0.0
        self._done: dict[str, int] = {}

    def read(self, line: str) -> None:
        """A line of the child: ``pass done steps``, or ``= pass:steps pass:steps ...`` for all
        passes.
        """
        name, *told = line.split()
        if name != "=":
            done, steps = map(int, told)
            self._note(name, done)
            self._progress(name, done, steps)
        elif isinstance(self._progress, Display):
            pairs = (each.partition(":") for each in told)
            self._progress.outline([(name, int(steps)) for name, _, steps in pairs])

    def _note(self, name: str, done: int) -> None:
        now = self._now()
        if self._done:  # the first one waits for the imports
            self._longest = max(self._longest, now - self._last)
        self._done[name] = done
        self._last = now

    @property
    def steps(self) -> int:
        """Steps that are complete."""
        return sum(self._done.values())

    def hangs(self, left: float) -> bool:
        """Whether to give up a step that hangs with ``left`` s to go: what is left just suffices to
        run the steps before it again.
        """
        waited = self._now() - self._last
        if self.steps < LEAST_RERUN or waited < HANGS_S + HANGS * self._longest:
            return False
        return left < AGAIN_S + AGAIN * (self._last - self._began)
