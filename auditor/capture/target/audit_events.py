"""The interpreter's audit events, heard by one hook: a hook cannot be taken back, and each is called
for every event.

Reading ``frame.f_code`` is an event (``object.__getattr__``), as is ``sys._getframe``: with a hook,
each costs as much as a call of a Python function.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from auditor.syntax.config_files import MOST_FILES, suffix_of

Handler = Callable[[str, tuple[Any, ...]], None]
"""Is given an event and its arguments; what it raises fails what the program was about to do."""

_HANDLERS: dict[str, tuple[Handler, ...]] = {}
_BEGUN: list[bool] = []


def hear(events: Iterable[str], handler: Handler) -> None:
    """Give these events to ``handler`` from now on, after those that hear them already."""
    for event in events:
        _HANDLERS[event] = (*_HANDLERS.get(event, ()), handler)
    if not _BEGUN:
        _BEGUN.append(True)
        sys.addaudithook(_heard)


def ignore(handler: Handler) -> None:
    """Give it no event any more. May be called twice."""
    for event, handlers in list(_HANDLERS.items()):
        left = tuple(each for each in handlers if each != handler)
        if left:
            _HANDLERS[event] = left
        else:
            del _HANDLERS[event]


def _heard(
    event: str,
    args: tuple[Any, ...],
    # Bound here: when the interpreter ends, names of modules are gone before hooks are.
    handlers_of: Callable[[str], tuple[Handler, ...] | None] = _HANDLERS.get,
) -> None:
    handlers = handlers_of(event)
    if handlers is not None:
        for handler in handlers:
            handler(event, args)


# -- opened files ----------------------------------------------------------------------------------
# Notes which configuration files the target reads, by the interpreter's own audit events: no
# function is replaced.
#
# An event that is none of ours takes 60 ns; a small training step with a data loader makes 8 of them.


class OpenedConfigs:
    """Files opened for reading while it watches."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._watching = False

    def start(self) -> None:
        """Watch from now on."""
        self._watching = True
        hear(("open",), self._heard)

    def stop(self) -> None:
        """Hear nothing any more."""
        self._watching = False
        ignore(self._heard)

    def _heard(self, event: str, args: tuple[object, ...]) -> None:
        if not self._watching or len(args) < 2:  # anybody may raise an event of this name
            return
        path, mode = args[0], args[1]
        if not isinstance(path, str) or (
            isinstance(mode, str) and (not mode.startswith("r") or "+" in mode)
        ):
            return
        try:  # what is raised here would fail the user's open()
            if suffix_of(path) and len(self.files) < 4 * MOST_FILES:
                path = os.path.abspath(path)
                if path not in self.files:
                    self.files.append(path)
        except Exception:
            self._watching = False
