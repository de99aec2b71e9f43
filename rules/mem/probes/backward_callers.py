"""The user's lines that a backward runs under, outermost call to innermost: which handlers guard it
can then be read in the source.
"""

from __future__ import annotations

import sys

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.probes.base import Context, Probe

from ..rows import EnclosingRow

STACKS = 64
"""Different stacks that are written at most: recursion must not fill the recording."""


class BackwardCallersProbe(Probe):
    """Writes ``enclosing``: one row for each stack of user frames around the step's backwards."""

    name = "enclosing"
    parts = ("enclosing",)
    passes = frozenset({"loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._told: set[tuple[int, ...]] = set()

    def start(self) -> None:
        self._told.clear()
        super().start()

    def backward_begins(self, call: Backward) -> None:
        """Write the stack, the first time that it is seen."""
        if call.nested or not self.context.in_step or len(self._told) >= STACKS:
            return
        frames = self.context.frames
        lines = tuple(frames.number(each) for each in frames.user_frames(sys._getframe()))
        if lines and lines not in self._told:
            self._told.add(lines)
            self.context.add(EnclosingRow(lines=list(lines)))
