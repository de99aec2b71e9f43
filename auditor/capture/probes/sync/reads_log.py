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
from auditor.errors import fault
from auditor.recordings.schema.sync import ReadRow

PART = "reads"


class Inside(threading.local):
    """True while a read that counts already runs in this thread: what it does inside is part of
    it.
    """

    reading = False


@dataclass
class Count:
    """What one place reads: constant facts, and the numbers of the step that runs."""

    at: int
    kind: str
    lib: str
    codes: tuple[object, ...]
    """Code objects that the key names by ``id``, kept alive."""
    n: int = 0
    us: float = 0.0
    first: float = 0.0
    last: float = 0.0
    """When the step's first and last reads ended (``perf_counter``)."""

    def seen(self, at: float) -> None:
        """One more, which ended ``at``."""
        self.first, self.last = (self.first if self.n else at), at
        self.n += 1

    def row(self) -> ReadRow:
        """The row of the step; the numbers begin again."""
        row = ReadRow(
            at=self.at,
            kind=self.kind,
            n=self.n,
            us=round(self.us, 2),
            span_us=round((self.last - self.first) * 1e6, 2),
            lib=self.lib,
        )
        self.n, self.us = 0, 0.0
        return row


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
        self._counts: dict[tuple[int, int, int, str, bool], Count] = {}
        self._last: Move | None = None
        self._thread = threading.get_ident()
        self._process = os.getpid()

    def idle(self) -> bool:
        """True if a read now would not be the step's doing, or is part of one that is being
        counted.
        """
        return self.inside.reading or not self.context.in_step

    def concerns(self, tensor: torch.Tensor) -> bool:
        """True if reading this tensor makes the host wait."""
        return tensor.is_cuda

    def note(self, kind: str, subjects: Iterable[Any], started: float) -> None:
        """Count a read of ``subjects`` that began at ``started`` (``perf_counter``) and ends
        now.
        """
        ended = perf_counter()
        try:
            self._note(kind, tuple(tensors(subjects)), started, ended, sys._getframe(1))
        except Exception as error:  # the user's step goes on whatever we got wrong
            self.fail(error)

    def note_crossing(self, kind: str) -> None:
        """Count a read that the shadow device reports: nothing took any time there."""
        place = self.place(sys._getframe(1))
        if place is not None:
            self._count(place, kind).seen(perf_counter())

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

    def _note(
        self,
        kind: str,
        subjects: tuple[torch.Tensor, ...],
        started: float,
        ended: float,
        start: FrameType,
    ) -> None:
        place = self.place(start)
        if place is None or not subjects or self._is_copy(subjects[0], place.frame):
            return
        count = self._count(place, kind)
        count.seen(ended)
        count.us += (ended - started) * 1e6

    def _count(self, place: Place, kind: str) -> Count:
        frame, via, loader = place
        key = (id(frame.f_code), frame.f_lasti, 0 if via is None else id(via.f_code), kind, loader)
        count = self._counts.get(key)
        if count is None:
            codes = (frame.f_code, None if via is None else via.f_code)
            at = self.context.frames.number(frame, via)
            count = self._counts[key] = Count(at, kind, "loader" if loader else "", codes)
        return count

    def place(self, start: FrameType) -> Place | None:
        """The user's line that causes what is seen at ``start``; None if it is not the step's
        doing.
        """
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

    def _is_copy(self, tensor: torch.Tensor, frame: FrameType) -> bool:
        last = self._last
        if last is None or last.code is not frame.f_code or alive(last.result) is not tensor:
            return False
        file = frame.f_code.co_filename
        return statement(file, frame.f_lineno) == statement(file, last.line)

    def begin(self) -> None:
        """A step begins: it runs in the calling thread."""
        self._thread = threading.get_ident()
        self._last = None

    def write(self) -> None:
        """Write what the step counted, and begin again."""
        for count in self._counts.values():
            if count.n:
                self.context.add(count.row())
