"""Whether a call comes from a line of the program's."""

from __future__ import annotations

import os
from collections.abc import Collection
from types import FrameType


def comes_from(frame: FrameType | None, places: Collection[tuple[str, int]]) -> bool:
    """Whether the frame, or one that called it, is at one of these places: real path and line."""
    lines = {line for _, line in places}
    while frame is not None:
        line = frame.f_lineno
        if line in lines and (os.path.realpath(frame.f_code.co_filename), line) in places:
            return True
        frame = frame.f_back
    return False
