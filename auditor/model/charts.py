"""Charts of a report as data: lines by step, memory over time, the parts of steps."""

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
    """Raises :class:`Overdue` in the block after ``seconds``.

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
    """A plotted line: ``x`` is a step's number (from 0), ``y`` in ``unit`` (``us``, ``bytes``)."""

    name: str
    unit: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    ended: tuple[float, str] | None = None
    """The step in which the run ended early, and by what."""


@dataclass(frozen=True)
class Tone:
    """What a colour stands for: 1 to 9; 0 for what is empty (free, idle), -1 for the rest."""

    name: str
    colour: int


@dataclass(frozen=True)
class Layers:
    """Memory of one device over time, stacked by the line that allocated it, lowest first.

    ``held`` has one row of bytes a layer, ``reserved`` is what the allocator held, all at the same
    ``x``: us since the first event, or the event's number where ``x_unit`` is ``event``. ``marks``
    are moments with a name (a step begins, memory ran out). ``events`` were in the history; of each
    stretch of them the points with most and with least are here. ``codes`` are the rules whose
    findings it illustrates: codes or families.
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


@dataclass(frozen=True)
class Bar:
    """A stretch of one row, in us; ``tone`` is an index of the chart's ``tones``."""

    row: int
    start: float
    length: float
    tone: int
    label: str = ""


@dataclass(frozen=True)
class Parts:
    """What the steps are made of: a row of bars per side, in us; ``codes`` as in Layers."""

    title: str
    note: str
    rows: tuple[str, ...]
    tones: tuple[Tone, ...]
    bars: tuple[Bar, ...]
    codes: tuple[str, ...] = ()
