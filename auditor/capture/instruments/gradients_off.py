"""Where the program turns gradients off: blocks, and functions that are decorated."""

import functools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.user_frames import Frames

Place = tuple[Any, int]
"""A code object and an instruction in it."""

Hook = Callable[[Any, FrameType], None]
"""Is given the context manager, and the frame that enters or leaves it."""


def watch_blocks(
    patches: Patches, entered: Hook, exited: Hook, missed: Callable[[Exception], None]
) -> None:
    """Call these on this thread until ``patches`` are undone; what they raise goes to ``missed``."""
    thread = threading.get_ident()

    def telling(original: Callable[..., Any], hook: Hook) -> Callable[..., Any]:
        @functools.wraps(original)
        def watched(manager: Any, *error: Any) -> Any:
            result = original(manager, *error)
            try:
                if threading.get_ident() == thread:
                    hook(manager, sys._getframe(1))
            except Exception as problem:  # the user's block continues
                missed(problem)
            return result

        return watched

    for manager in (torch.no_grad, torch.inference_mode, torch.set_grad_enabled):
        for name, hook in (("__enter__", entered), ("__exit__", exited)):
            original = vars(manager).get(name)
            if original is not None:
                patches.attribute(manager, name, telling(original, hook))


def place_of_block(frames: Frames, frame: FrameType) -> Place | None:
    """Where a block of the user's begins: written in it, or in a decorated function of it."""
    if frames.is_user(frame.f_code.co_filename):
        return frame.f_code, frame.f_lasti
    if "func" not in frame.f_code.co_freevars:  # asking for the locals of a frame is slow
        return None
    code = getattr(frame.f_locals.get("func"), "__code__", None)
    return (code, -1) if code is not None and frames.is_user(code.co_filename) else None
