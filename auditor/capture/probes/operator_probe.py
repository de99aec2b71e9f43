"""The base of probes that watch single operators as they run."""

from __future__ import annotations

import os
from typing import ClassVar

from auditor.capture.instruments.dispatch_modes import (
    OperatorMode,
    enter_dispatch,
    run_compiled_code_eagerly,
)
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.probes.base import Context, Probe
from auditor.errors import fault

_WRAPPERS = tuple(
    os.path.join(os.sep, "torch", part) for part in ("_dynamo" + os.sep, "_compile.py", "_ops.py")
)
"""Parts of the paths of what torch wraps around every dispatch mode, and around the operators that
one calls.
"""


class OperatorProbe(Probe):
    """A probe that watches single operators in the calling thread, which must be the one that runs
    the step.
    """

    unseen: ClassVar[str]
    """How the sentence begins that says that a watch failed on some operators."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches()
        self._errors = 0

    def start(self) -> None:
        """Begin to watch; what was begun is taken back where that fails."""
        self.stop()
        try:
            run_compiled_code_eagerly(self._patches)
            self.watch()
        except BaseException:
            self._patches.undo()
            raise

    def watch(self) -> None:
        """Make the watch of this pass and :meth:`enter` it."""

    def enter(self, watch: OperatorMode) -> None:
        """Enter a watch; it is left when the patches are undone."""
        enter_dispatch(self._patches, watch)
        self.watches_operators = True
        self._patches.on_undo(lambda: setattr(self, "watches_operators", False))

    def here(self) -> int | None:
        """The user's line that an operator runs for."""
        return site_of_operator(self.context)

    def fail(self, error: Exception) -> None:
        """Say once that the watch failed on an operator."""
        self._errors += 1
        if self._errors == 1:
            self.context.lapse(self.name, self.parts, error)
            self.context.warn(f"{self.unseen} ({fault(error)})")


_THIN = tuple(
    os.path.join(os.sep, "torch", *path)
    for path in (("_tensor.py",), ("functional.py",), ("nn", "functional.py"))
)
"""Ends of the paths of what torch has in Python around single operators."""


def own_line_of_operator(context: Context) -> int | None:
    """The user's line if it calls the operator itself, not through a module or another library."""
    if not context.in_step:
        return None
    frame, via = context.frames.user_frame()
    while frame is not None and via is not None and via is not frame:
        file = via.f_code.co_filename
        known = _is_wrapper(file) or context.frames.is_own(file) or file.endswith(_THIN)
        if not known and not file.startswith("<"):
            return None
        via = via.f_back
    return None if frame is None else context.frames.number(frame)


def _is_wrapper(file: str) -> bool:
    return any(part in file for part in _WRAPPERS)


def site_of_operator(context: Context) -> int | None:
    """Where the user's line is that an operator of the step runs for, as a watch sees it; None
    outside of a step.
    """
    if not context.in_step:
        return None
    frames = context.frames
    frame, via = frames.user_frame()
    while via is not None and via is not frame:
        file = via.f_code.co_filename
        if not _is_wrapper(file) and not frames.is_own(file):
            break
        via = via.f_back
    return None if frame is None else frames.number(frame, None if via is frame else via)
