"""The interpreter's audit events, heard by one hook: a hook cannot be taken back, and each is called
for every event.

Reading ``frame.f_code`` is an event (``object.__getattr__``), as is ``sys._getframe``: with a hook,
each costs as much as a call of a Python function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

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
