"""Who is reading? One walk up the stack, from a read to the user's line."""

from __future__ import annotations

import os
from types import FrameType
from typing import Final, NamedTuple

from auditor.capture.instruments.torch_files import TORCH
from auditor.capture.instruments.user_frames import OWN, Frames

_PLUMBING: Final = tuple(
    """
    _ops.py overrides.py library.py _library/ utils/_python_dispatch.py utils/_device.py _compile.py
    _dynamo/eval_frame.py _dynamo/external_utils.py
    """.split()
)
"""Frames that overrides, modes and the entry into compiled code put there: never the place of a
read.
"""
_SURFACE: Final = (
    "_tensor.py",
    "_tensor_str.py",
    "functional.py",
    "_jit_internal.py",
    "nn/parameter.py",
)
"""The tensor's own methods written in Python: the user's line reads, not a library on its
behalf.
"""

_USER, _SKIP, _LIBRARY, _LOADER, _COMPILER = range(5)


class Place(NamedTuple):
    """Where a read happened: the user's frame, the innermost library frame below it, and whether
    the loader called.
    """

    frame: FrameType
    via: FrameType | None
    loader: bool


class Stack:
    """Walks stacks; remembers what each file is."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._rooms: dict[str, int] = {}

    def place(self, start: FrameType | None) -> Place | None:
        """The place of a read seen at ``start``; None without a user frame, or in compilation."""
        rooms = self._rooms  # hot: a few microseconds for each read
        frame, via, loader = start, None, False
        while frame is not None:
            file = frame.f_code.co_filename
            room = rooms[file] if file in rooms else self._room(file)
            if room == _USER:
                return Place(frame, via, loader or self._called_by_loader(frame.f_back))
            if room == _COMPILER:
                return None
            if room != _SKIP:
                loader = loader or room == _LOADER
                via = via or frame
            frame = frame.f_back
        return None

    def _called_by_loader(self, frame: FrameType | None) -> bool:
        rooms = self._rooms
        while frame is not None:
            file = frame.f_code.co_filename
            if (rooms[file] if file in rooms else self._room(file)) == _LOADER:
                return True
            frame = frame.f_back
        return False

    def _room(self, file: str) -> int:
        known = self._rooms.get(file)
        if known is None:
            known = self._rooms[file] = self._judge(file)
        return known

    def _judge(self, file: str) -> int:
        if self._frames.is_user(file):
            return _USER
        # code that the compiler wrote
        if file.startswith(("<", *OWN)) or f"{os.sep}torchinductor_" in file:
            return _SKIP
        name = torch_name(file)
        if name.startswith((*_PLUMBING, *_SURFACE)):
            return _SKIP
        if name.startswith("utils/data/"):
            return _LOADER
        return _COMPILER if name == "_dynamo/convert_frame.py" else _LIBRARY


def torch_name(file: str) -> str:
    """``optim/adam.py`` for a file of torch; empty for any other."""
    return file[len(TORCH) :].replace(os.sep, "/") if file.startswith(TORCH) else ""


def outermost(frame: FrameType) -> FrameType:
    """The frame that a thread began with."""
    while frame.f_back is not None:
        frame = frame.f_back
    return frame
