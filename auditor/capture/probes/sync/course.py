"""Which way each step goes, by the user's lines whose operators run on the device: in a rehearsal
and on the null device, so that the two can be compared.

On the null device also: what its own log says of launches and waits, line by line; and scalar reads
are told the value that the rehearsal read on that line.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from auditor import null_device
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import Call, OperatorProbe, Subscriber
from auditor.capture.shadow.tensor import Rooms
from auditor.recordings.folder import Recording
from auditor.recordings.schema.run import SiteRow
from auditor.recordings.schema.sync import CourseRow, DeviceWorkRow

if TYPE_CHECKING:
    from torch_null_device.watching import Blocking

COURSE, WORK = "course", "device_work"

LIMIT = 20_000
"""Entries of a step's lists that are kept."""

READ = "_local_scalar_dense"
SIZED = frozenset(
    """
    nonzero masked_select _unique _unique2 unique_dim unique_consecutive unique_dim_consecutive
    repeat_interleave bincount
    """.split()
)
"""Operators whose result has a size that depends on values."""

MOVES = frozenset(
    {READ, "_to_copy", "copy_", "_pin_memory", "lift", "lift_fresh", "detach", "alias", "set_"}
)
"""Operators that the shadow does by other means: they say nothing of the way that a step takes."""


class CourseProbe(OperatorProbe):
    """Writes ``course``, and on the null device ``device_work``."""

    name = "course"
    parts = (COURSE, WORK)
    passes = frozenset({"warmup", "loud", "memory"})
    in_rehearsals = True
    unseen = "the watch over operators failed on some of them"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._step = self._begun()
        self._work: dict[int | None, DeviceWorkRow] = {}
        self._native_thread = 0
        self._mark = 0
        self._answers: dict[int, dict[tuple[str, int], deque[str]]] | None = None
        self._lines: dict[int, tuple[str, int]] = {}

    @functools.cached_property
    def _null(self) -> Any:
        return null_device.watching()

    # -- the watch ---------------------------------------------------------------------------------

    def watch(self) -> None:
        """On the null device by a mode over operators, on the shadow where it runs them."""
        self.context.writer.touch(COURSE)
        if self.context.device.null:
            if self.context.pass_name == "loud":
                self.context.writer.touch(WORK)
            self.enter(_Watch(self))
        elif self.context.device.shadow:
            self._watch_shadow()

    def _watch_shadow(self) -> None:
        run = Rooms.operators

        def noted(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            result = run(func, args, kwargs)
            try:
                self.ran(func, args, kwargs, result)
            except Exception as error:  # the user's step continues
                self.missed(error)
            return result

        Rooms.operators = noted
        self._patches.on_undo(lambda: setattr(Rooms, "operators", run))

    # -- steps -------------------------------------------------------------------------------------

    def step_begin(self) -> None:
        super().step_begin()
        self._step, self._work = self._begun(), {}
        self._native_thread = threading.get_native_id()
        if self.context.device.null:
            self._mark = self._null.mark()

    def step_end(self) -> None:
        if self.context.device.null:
            self.between()
        self._step.global_step = self.context.global_step
        self._step.sized = sorted(set(self._step.sized))
        self.context.add(self._step)
        if self.context.pass_name == "loud":
            for work in self._work.values():
                work.calls = sorted(set(work.calls))
                self.context.add(work)
        self._step, self._work = self._begun(), {}

    @staticmethod
    def _begun() -> CourseRow:
        return CourseRow(global_step=0, places=[], read_at=[], read=[], sized=[])

    def _work_at(self, place: int | None) -> DeviceWorkRow:
        """What the line asked of the device in this step."""
        new = DeviceWorkRow(at=place, n=0, launches=0, waits=0, calls=[])
        return self._work.setdefault(place, new)

    @staticmethod
    def _blocked(work: DeviceWorkRow, calls: Iterable[Blocking]) -> None:
        for call in calls:
            work.waits += call.waits
            work.calls.append(call.call)

    # -- operators ---------------------------------------------------------------------------------

    def place(self) -> int | None:
        """The user's line that an operator runs for; of one in a thread of autograd's the line that
        the step stands on. None outside of a step, and in other threads.
        """
        if not self.context.in_step:
            return None
        frames = self.context.frames
        frame, _ = frames.user_frame()
        if frame is None and threading.get_ident() != self._thread:
            frame = self._innermost(sys._current_frames().get(self._thread))
        return None if frame is None else frames.number(frame)

    def _innermost(self, frame: FrameType | None) -> FrameType | None:
        return next(iter(self.context.frames.user_frames(frame, 1)), None)

    def ran(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> int | None:
        """An operator with a tensor of the device has run: note where."""
        place = self.place()
        if place is None:
            return None
        name, step = func.__name__.partition(".")[0], self._step
        if name not in MOVES and step.places[-1:] != [place] and len(step.places) < LIMIT:
            step.places.append(place)
        if _sized(name, args, kwargs):
            step.sized.append(place)
        if name == READ and len(step.read) < LIMIT:
            step.read_at.append(place)
            step.read.append(repr(result))
        return place

    def asked(self, since: int, launches: int, place: int | None) -> None:
        """What an operator asked of the null device."""
        work = self._work_at(place)
        work.n += 1
        work.launches += launches
        now = int(self._null.mark())
        if now != since:
            self._blocked(work, self._null.blocking(since, now))
        self._mark = now

    def launches(self) -> int:
        """Launches in this process so far, those of libraries among them."""
        counted = self._null.counters()
        return int(counted["launches"] + counted["library_launches"])

    def between(self) -> int:
        """Blocking calls since the last operator, in the step's own thread."""
        now = int(self._null.mark())
        if now != self._mark:
            calls = self._null.blocking(self._mark, now)
            own = [call for call in calls if call.thread == self._native_thread]
            if own:
                self._blocked(self._work_at(self.place()), own)
        self._mark = now
        return now

    # -- the rehearsal's values --------------------------------------------------------------------

    def answer(self, place: int | None, result: Any) -> Any:
        """What the rehearsal read on that line in that step, while it lasts; else the device's."""
        if place is None or not self.context.plan.answers:
            return result
        if self._answers is None:
            self._answers = _answers(self.context.plan.answers)
        there = self._answers.get(self.context.global_step, {}).get(self._line(place))
        if not there:
            return result
        self._step.answered += 1
        value = there.popleft()
        if isinstance(result, bool):
            return value == "True"
        return type(result)(float(value)) if isinstance(result, (int, float)) else result

    def _line(self, place: int) -> tuple[str, int]:
        known = self._lines.get(place)
        if known is None:
            frame, _ = self.context.frames.user_frame()
            if frame is None:
                frame = self._innermost(sys._current_frames().get(self._thread))
            assert frame is not None
            file = self.context.frames.spelled(frame.f_code.co_filename)
            known = self._lines[place] = file, frame.f_lineno
        return known


class _Watch(Subscriber):
    """Sees operators on the null device."""

    def __init__(self, probe: CourseProbe) -> None:
        super().__init__(probe.missed)
        self._probe = probe

    def before(self, call: Call) -> tuple[int, int] | None:
        on_device = any(each.device.type == "cuda" for each in call.given)
        return (self._probe.between(), self._probe.launches()) if on_device else None

    def after(self, call: Call, noted: tuple[int, int]) -> None:
        """Note what the operator asked of it, and answer a read."""
        (since, launched), probe = noted, self._probe
        func = call.operator.func
        place = probe.ran(func, call.args, call.kwargs, call.result)
        probe.asked(since, probe.launches() - launched, place)
        if call.operator.own_name == READ:
            call.result = probe.answer(place, call.result)


def _sized(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the size of the result depends on values."""
    if name == "index":
        masks = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ()
        return any(each is not None and each.dtype in (torch.bool, torch.uint8) for each in masks)
    return name in SIZED and kwargs.get("output_size") is None


def _answers(folder: str) -> dict[int, dict[tuple[str, int], deque[str]]]:
    """By step of the run and line: what was read there, in order."""
    recording = Recording(Path(folder))
    lines = {row.id: (row.file, row.line) for row in recording.rows(SiteRow)}
    found: dict[int, dict[tuple[str, int], deque[str]]] = {}
    for row in recording.rows(CourseRow):
        step = found.setdefault(row.global_step, {})
        for at, value in zip(row.read_at, row.read, strict=False):
            step.setdefault(lines[at], deque()).append(value)
    return found
