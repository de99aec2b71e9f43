"""What torch itself writes to stderr from C++."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Final

import torch

_LIBRARY: Final = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
_ERROR: Final = 2


def errors_alone() -> Callable[[], None]:
    """From now on; returns what undoes it. Without ``FLAGS_caffe2_log_level`` (another system,
    another build) all is written.
    """
    try:
        level = ctypes.c_int.in_dll(ctypes.CDLL(_LIBRARY), "FLAGS_caffe2_log_level")
    except (OSError, ValueError):
        return lambda: None
    before, level.value = level.value, max(level.value, _ERROR)

    def undo() -> None:
        level.value = before

    return undo
