"""Where the program turns gradients off: blocks, and functions that are decorated."""

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.user_frames import Frames

Place = tuple[Any, int]
"""A code object and an instruction in it."""

Hook = Callable[[Any, FrameType], None]
"""Is given the context manager, and the frame that enters or leaves it."""


class _Watcher(NamedTuple):
    """``hooks``: of entering and leaving; ``thread``: whose blocks it is told of; ``missed`` gets
    what they raise.
    """

    hooks: tuple[Hook, Hook]
    thread: int
    missed: Callable[[Exception], None]


_WATCHERS: list[_Watcher] = []
_PATCHES = Patches()


def watch_blocks(
    patches: Patches, entered: Hook, exited: Hook, missed: Callable[[Exception], None]
) -> None:
    """Call these on this thread until ``patches`` are undone; what they raise goes to ``missed``.
    All who watch share one patch of torch's context managers.
    """
    watcher = _Watcher((entered, exited), threading.get_ident(), missed)

    def leave() -> None:
        _WATCHERS.remove(watcher)
        if not _WATCHERS:
            _PATCHES.undo()

    if not _WATCHERS:
        for manager in (torch.no_grad, torch.inference_mode, torch.set_grad_enabled):
            for number, name in enumerate(("__enter__", "__exit__")):
                original = vars(manager).get(name)
                if original is not None:
                    _PATCHES.attribute(manager, name, _telling(original, number))
    _WATCHERS.append(watcher)
    patches.on_undo(leave)


def _telling(original: Callable[..., Any], number: int) -> Callable[..., Any]:
    @functools.wraps(original)
    def watched(manager: Any, *error: Any) -> Any:
        result = original(manager, *error)
        here = threading.get_ident()
        for each in tuple(_WATCHERS):
            try:
                if each.thread == here:
                    each.hooks[number](manager, sys._getframe(1))
            except Exception as problem:  # the user's block continues
                each.missed(problem)
        return result

    return watched


def place_of_block(frames: Frames, frame: FrameType) -> Place | None:
    """Where a block of the user's begins: written in it, or in a decorated function of it."""
    if frames.is_user(frame.f_code.co_filename):
        return frame.f_code, frame.f_lasti
    if "func" not in frame.f_code.co_freevars:  # asking for the locals of a frame is slow
        return None
    code = getattr(frame.f_locals.get("func"), "__code__", None)
    return (code, -1) if code is not None and frames.is_user(code.co_filename) else None
