"""The tally of reads: one entry for each place and kind, written as rows when the step ends."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from types import CodeType, FrameType
from typing import Any

import torch

from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.instruments.weakrefs import alive
from auditor.capture.probes.base import Context
from auditor.capture.probes.sync.reads_source import statement
from auditor.capture.probes.sync.reads_stack import Place, Stack, outermost
from auditor.capture.probes.tally import Counted
from auditor.errors import fault
from auditor.recordings.schema.sync import ReadRow

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

    def concerns(self, tensor: torch.Tensor) -> bool:
        """True if reading this tensor makes the host wait."""
        return tensor.is_cuda

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
        except Exception as error:  # the user's step goes on whatever we got wrong
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

    def place(self, start: FrameType) -> Place | None:
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
