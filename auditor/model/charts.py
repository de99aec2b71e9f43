"""Charts of a report as data: memory in layers over time, and bars in lanes. Standard library
only.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Literal, TypeVar

from auditor.errors import fault

T = TypeVar("T")

SECONDS = 30.0
"""What charts of one kind may take: ours. Those of an 80 MB trace take two seconds."""


class Overdue(Exception):
    """A chart took longer than it may."""


def drawn(
    what: str, draw: Callable[[], tuple[T, ...]], warnings: list[str], seconds: float = SECONDS
) -> tuple[T, ...]:
    """What ``draw`` gives; where it fails or takes too long, nothing and one sentence in
    ``warnings``.

    A chart never costs the report.
    """
    try:
        with within(seconds):
            return draw()
    except Overdue:
        warnings.append(f"{what} is not drawn: it would take longer than {seconds:.3g} s")
    except Exception as error:
        warnings.append(f"{what} cannot be drawn: {fault(error)}")
    return ()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises :class:`Overdue` in the block after so many seconds.

    An alarm of the system does it, which only the main thread can set, and Windows has none: there
    the block has all the time it takes. An alarm of the caller's is set again when the block ends,
    less the time that the block took.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return
    handler = signal.signal(signal.SIGALRM, _ring)
    # again, should something swallow the first
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        rest, _ = signal.setitimer(signal.ITIMER_REAL, 0.0)
        # None: one that C code set
        signal.signal(signal.SIGALRM, handler if handler is not None else signal.SIG_DFL)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left - (seconds - rest)), interval)


def _ring(_number: int, _frame: FrameType | None) -> None:
    raise Overdue


@dataclass(frozen=True)
class Series:
    """One plotted line: ``x`` is the step's number in the run (from 0), ``y`` in ``unit`` (``us``
    or ``bytes``).
    """

    name: str
    unit: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    marks: tuple[tuple[float, str], ...] = ()
    ended: tuple[float, str] | None = None
    """The step in which the run ended early, and by what."""


@dataclass(frozen=True)
class Tone:
    """Who or what a colour stands for. ``colour`` is 1 to 9; 0 for what is empty (free, idle), -1
    for all the rest.
    """

    name: str
    colour: int


@dataclass(frozen=True)
class Layers:
    """Memory of one device over time, stacked by the line that allocated it or by its purpose,
    lowest first.

    ``held`` has one row of bytes a layer, ``reserved`` is what the allocator held, all at the same
    ``x``: us since the first event, or the event's number where ``x_unit`` is ``event``. ``marks``
    are moments with a name (a step begins, memory ran out). ``events`` were in the history; of each
    stretch of them the points with most and with least are here. ``codes`` are the rules whose
    findings it illustrates: codes or families. A chart by purpose follows that of its device by
    line.
    """

    title: str
    note: str
    x_unit: Literal["us", "event"]
    x: tuple[float, ...]
    layers: tuple[Tone, ...]
    held: tuple[tuple[int, ...], ...]
    reserved: tuple[int, ...]
    marks: tuple[tuple[float, str], ...] = ()
    events: int = 0
    codes: tuple[str, ...] = ()
    by: Literal["line", "purpose"] = "line"


@dataclass(frozen=True)
class Bar:
    """A stretch of one lane, in the chart's unit; ``tone`` is an index of its ``tones``."""

    lane: int
    start: float
    length: float
    tone: int
    label: str = ""


@dataclass(frozen=True)
class Pointer:
    """Where a finding (by its ``key``) shows in a chart: from ``start`` for ``length``."""

    key: str
    start: float
    length: float


@dataclass(frozen=True)
class Gap:
    """The longest stretch of a step, from ``start`` for ``length``, in which nothing happened on the
    device, or where there is none on the host (``whose``): the rows of ``lanes`` show it.

    ``share`` is that of the step, ``said`` who could have filled it, in words; ``key`` that of the
    finding that explains it, empty where none does.
    """

    lanes: tuple[int, ...]
    start: float
    length: float
    share: float
    whose: Literal["device", "host"]
    said: str
    key: str = ""


@dataclass(frozen=True)
class Lanes:
    """Bars in lanes: the timeline of a step, the parts of all steps, or the segments of a device's
    memory.

    ``unit`` is ``us`` or ``bytes``. ``edges`` are borders of segments: lane and place. ``total``
    things were there; those too short to be seen are joined with their neighbours. ``codes`` as in
    :class:`Layers`.
    """

    kind: Literal["timeline", "parts", "segments"]
    title: str
    note: str
    unit: Literal["us", "bytes"]
    lanes: tuple[str, ...]
    tones: tuple[Tone, ...]
    bars: tuple[Bar, ...]
    edges: tuple[tuple[int, float], ...] = ()
    pointers: tuple[Pointer, ...] = ()
    total: int = 0
    codes: tuple[str, ...] = ()
    gap: Gap | None = None
    """The costliest one; None where none has weight."""
    origin: float | None = None
    """Time stamp (us) at which a timeline begins in the trace that it was drawn from."""
