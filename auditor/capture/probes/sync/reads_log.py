"""The tally of reads: one entry for each place and kind, written as rows when the step ends."""

import ast
import linecache
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from time import perf_counter
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, cast

import torch

from auditor.capture.instruments.live_objects import alive
from auditor.capture.instruments.plain_tensor import TORCH, tensors
from auditor.capture.instruments.user_frames import OWN, Frames
from auditor.capture.probes.base import Context
from auditor.capture.probes.tally import Counted
from auditor.errors import fault
from auditor.recordings.schema.sync import ReadRow
from auditor.syntax.index import index_of

_PLUMBING: Final = tuple(
    """
    _ops.py overrides.py library.py _library/ utils/_python_dispatch.py utils/_device.py _compile.py
    _dynamo/eval_frame.py _dynamo/external_utils.py
    """.split()
)
"""Frames of overrides, modes and compiled code's entry: never the place of a read."""
_SURFACE: Final = tuple(
    "_tensor.py _tensor_str.py functional.py _jit_internal.py nn/parameter.py".split()
)
"""The tensor's own methods in Python: there the user's line reads, not a library."""

_USER, _SKIP, _LIBRARY, _LOADER, _COMPILER = range(5)


class ReadFrames(NamedTuple):
    """Where a read happened: the user's frame, the innermost library frame, the loader."""

    frame: FrameType
    via: FrameType | None
    loader: bool


class Stack:
    """Walks stacks; remembers what each file is."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._rooms: dict[str, int] = {}

    def place(self, start: FrameType | None) -> ReadFrames | None:
        """The place of a read seen at ``start``; None without a user frame, or in compilation."""
        rooms = self._rooms  # hot: a few microseconds for each read
        frame, via, loader = start, None, False
        while frame is not None:
            file = frame.f_code.co_filename
            room = rooms[file] if file in rooms else self._room(file)
            if room == _USER:
                return ReadFrames(frame, via, loader or self._called_by_loader(frame.f_back))
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
        # ``optim/adam.py`` for a file of torch; empty for any other
        name = file[len(TORCH) :].replace(os.sep, "/") if file.startswith(TORCH) else ""
        if name.startswith((*_PLUMBING, *_SURFACE)):
            return _SKIP
        if name.startswith("utils/data/"):
            return _LOADER
        return _COMPILER if name == "_dynamo/convert_frame.py" else _LIBRARY


def outermost(frame: FrameType) -> FrameType:
    """The frame that a thread began with."""
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


Position = tuple[int, int, int, int]
"""First and last line, first and last column."""


def statement(file: str, line: int) -> tuple[int, int]:
    """First and last line of the statement (or head) that ``line`` belongs to."""
    within = [extent for extent in _statements(file) if extent[0] <= line <= extent[1]]
    return min(within, key=lambda extent: extent[1] - extent[0], default=(line, line))


@lru_cache(maxsize=256)
def _statements(file: str) -> tuple[tuple[int, int], ...]:
    return tuple(_extent(node) for node in nodes_of(file) if isinstance(node, ast.stmt))


def _extent(node: ast.stmt) -> tuple[int, int]:
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno or node.lineno
    return node.lineno, max(node.lineno, last)


def position(code: CodeType, lasti: int) -> Position | None:
    """Position of an instruction's expression; None with ``-X no_debug_ranges``."""
    found = next(islice(code.co_positions(), lasti // 2, None), (None,) * 4)
    return None if None in found else cast("Position", found)


@lru_cache(maxsize=256)
def nodes_of(file: str) -> Sequence[ast.AST]:
    """The nodes of a file; none where it cannot be parsed."""
    return index_of("".join(linecache.getlines(file))).nodes


PART = "reads"


class Inside(threading.local):
    """True while a counted read runs in this thread: what it does inside is part of it."""

    reading = False


@dataclass(frozen=True)
class Move:
    """The last transfer to the host: its result, and where it was made."""

    result: weakref.ref[torch.Tensor]
    code: CodeType
    line: int


class ReadLog:
    """Counts reads that the user's step causes. :meth:`note` never raises."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.inside = Inside()
        self.stack = Stack(context.frames)
        self.errors = 0
        self._rows = Counted(context, ReadRow)
        self._first: dict[tuple[int, str, str], float] = {}
        """When the step's first read of each row ended (``perf_counter``)."""
        self._known: dict[tuple[int, int, int], tuple[int, tuple[object, ...]]] = {}
        """Numbers of places, with the code objects that the key names by ``id``, kept alive."""
        self._last: Move | None = None
        self._thread = threading.get_ident()
        self._process = os.getpid()

    def idle(self) -> bool:
        """True if a read now is not the step's, or is part of one being counted."""
        return self.inside.reading or not self.context.in_step

    def note(
        self, kind: str, subjects: Iterable[Any] | None = None, started: float | None = None
    ) -> None:
        """Count a read of ``subjects`` that began at ``started`` (``perf_counter``) and ends now;
        without them one that the shadow device reports, where nothing takes any time.
        """
        ended = perf_counter()
        try:
            place = self.place(sys._getframe(1))
            if place is None or (subjects is not None and self._is_no_read(subjects, place.frame)):
                return
            frame, via = place.frame, place.via
            key = (id(frame.f_code), frame.f_lasti, 0 if via is None else id(via.f_code))
            if key not in self._known:
                codes = (frame.f_code, None if via is None else via.f_code)
                self._known[key] = self.context.frames.number(frame, via), codes
            at, lib = self._known[key][0], "loader" if place.loader else ""
            row = self._rows.of(at=at, kind=kind, lib=lib)
            row.n += 1
            row.us = round(row.us + (ended - (ended if started is None else started)) * 1e6, 2)
            row.span_us = round((ended - self._first.setdefault((at, kind, lib), ended)) * 1e6, 2)
        except Exception as error:  # the user's step continues despite our error
            self.fail(error)

    def remember(self, copy: torch.Tensor) -> None:
        """``copy`` just came to the host: reading it in the same statement is no second read."""
        frame = None if self.idle() else self.context.frames.user_frame()[0]
        if frame is not None:
            self._last = Move(weakref.ref(copy), frame.f_code, frame.f_lineno)

    def fail(self, error: Exception) -> None:
        """Count one of our own errors; warn about the first."""
        self.errors += 1
        if self.errors == 1:
            self.context.lapse("reads", ("reads",), error)
            self.context.warn(f"some reads were not counted: {fault(error)}")

    def place(self, start: FrameType) -> ReadFrames | None:
        """The user's line behind what is seen at ``start``; None if it is not the step's doing."""
        if os.getpid() != self._process:  # a forked worker of the loader
            return None
        place = self.stack.place(start)
        if place is None:
            return None
        if (
            threading.get_ident() != self._thread
            and outermost(start).f_code.co_filename == threading.__file__
        ):
            return None  # a thread of the user's own does not hold the step up
        return place

    def _is_no_read(self, subjects: Iterable[Any], frame: FrameType) -> bool:
        """Nothing is read, or what the same statement has just copied to the host."""
        read, last = next(iter(tensors(subjects)), None), self._last
        if last is None or last.code is not frame.f_code or alive(last.result) is not read:
            return read is None
        file = frame.f_code.co_filename
        return statement(file, frame.f_lineno) == statement(file, last.line)

    def begin(self) -> None:
        """A step begins: it runs in the calling thread."""
        self._thread = threading.get_ident()
        self._last = None

    def write(self) -> None:
        """Write what the step counted, and begin again."""
        self._rows.write()
        self._first.clear()
