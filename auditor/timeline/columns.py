"""Decoded events to columns, piece by piece, so that no piece's objects outlive it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct, field
from numpy.typing import NDArray

from auditor.timeline.trace import KERNEL, MEMCPY, MEMSET, TABLES, Thread, schema

TIME_LIMIT_US = 4.0e15
"""Microseconds (the year 2096 as epoch time): a later time is taken for damage."""
NAME_LIMIT = 4096
TEXT_LIMIT = 1 << 16
"""Characters of one name, and bytes of one shape or stack text, that are kept."""
TOTAL_LIMIT = 512 << 20
"""Characters of all different names that are kept; later ones share one name."""

Columns = tuple[NDArray[Any], ...]


EMPTY = Raw(b"")


class Args(Struct, gc=False, frozen=True):
    """Arguments of an event. Numbers are of any type: AMD writes some as text."""

    forward_thread: Any = field(default=-1, name="Fwd thread id")
    shapes: Raw = field(default=EMPTY, name="Input Dims")
    old_shapes: Raw = field(default=EMPTY, name="Input dims")
    types: Raw = field(default=EMPTY, name="Input type")
    correlation: Any = -1
    device: Any = -1
    stream: Any = -1
    bytes: Any = -1
    memory_bytes: Any = field(default=None, name="Bytes")
    allocated: Any = field(default=-1, name="Total Allocated")
    reserved: Any = field(default=-1, name="Total Reserved")
    device_type: Any = field(default=-1, name="Device Type")
    device_id: Any = field(default=-1, name="Device Id")


class Event(Struct, gc=False):
    """Any event: a span (``ph`` X), an instant, an arrow, a label."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: float = math.nan
    dur: float = 0.0
    tid: int | str = -1
    pid: int | str = -1
    args: Args = Args()


EVENTS = msgspec.json.Decoder(list[Event], strict=False)

ANNOTATION, MEMORY = "user_annotation", "cpu_instant_event"
WORK = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
}
"""Categories of work on a device; those that begin with a capital are Kineto's of 2021."""

GROUPS = {
    "cpu_op": "operators",
    "Operator": "operators",
    ANNOTATION: "operators",
    "Runtime": "calls",
    **dict.fromkeys(WORK, "work"),
    "python_function": "frames",
    "cuda_sync": "syncs",
} | {
    f"{maker}_{part}": "calls"
    for maker in ("cuda", "hip", "xpu", "privateuse1")
    for part in ("runtime", "driver")
}
"""Category of a span -> the table that it goes into; all others go into ``others``."""


def group_of(event: Event) -> str:
    """The table of a span; without a category (torch.autograd.profiler) by arguments."""
    if event.cat:
        return GROUPS.get(event.cat, "others")
    args = event.args
    if event.pid == "CUDA functions" or (args.stream != -1 and args.device != -1):
        kinds = {"Memcpy", "Memset"}
        event.cat = event.name[:6] if event.name[:6] in kinds else "kernel"
        return "work"
    return "calls" if args.correlation != -1 else "operators"


def is_memory(event: Event) -> bool:
    """Whether memory was taken or given back."""
    instant = event.ph in {"i", "I"} or event.cat == MEMORY
    return instant and event.args.memory_bytes is not None


_LIMIT = 2**62


def whole(value: Any) -> int:
    """``value`` as a number that fits a column, or -1."""
    if isinstance(value, str):
        try:
            value = int(value, 0) if len(value) < 32 else -1
        except ValueError:
            return -1
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) else -1
    return value if isinstance(value, int) and -_LIMIT < value < _LIMIT else -1


def small(value: Any, bits: int = 31) -> int:
    """``value`` as a number that fits a narrow column, or -1."""
    number = whole(value)
    return number if abs(number) < 1 << bits else -1


def last_number(label: int | str) -> int:
    """7 of a thread that is named ``stream 7``, or by its number."""
    return whole(str(label).rpartition(" ")[2])


class Numbered(dict[Any, int]):
    """Values to codes in order of appearance; over-long ones are cut, and beyond the total limit
    share the code of ``""``.
    """

    def __init__(self, limit: int, empty: str | bytes) -> None:
        super().__init__()
        self.values_in_order: list[Any] = []
        self._limit = limit
        self._room = TOTAL_LIMIT
        self._empty = empty

    def __missing__(self, value: Any) -> int:
        short = value[: self._limit]
        if len(short) > self._room:
            short = self._empty
        if len(short) != len(value):
            return self[short]
        self._room -= len(short)
        self.values_in_order.append(value)
        code = self[value] = len(self.values_in_order) - 1
        return code


class NumberedThreads(dict[tuple[Any, Any], int]):
    """(pid, tid) to codes; ``"25738"`` and ``25738`` are one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[Thread] = []
        self._seen: dict[Thread, int] = {}

    def __missing__(self, key: tuple[Any, Any]) -> int:
        thread = Thread(str(key[0])[:NAME_LIMIT], str(key[1])[:NAME_LIMIT])
        if thread not in self._seen:
            self._seen[thread] = len(self.threads)
            self.threads.append(thread)
        code = self[key] = self._seen[thread]
        return code


class Builder:
    """Collects columns. :meth:`add` raises on a value that fits none, and adds nothing then."""

    def __init__(self) -> None:
        self.names = Numbered(NAME_LIMIT, "")
        self.texts = Numbered(TEXT_LIMIT, b"")
        self.texts[b""] = -1
        self.threads = NumberedThreads()
        self.absurd = 0
        """Spans whose time cannot be: beyond 2096, or not a number."""
        self._parts: dict[str, list[Columns]] = {group: [] for group in TABLES}
        self._makers: dict[str, Callable[[Sequence[Event]], Columns]] = {
            "operators": self._operators,
            "calls": self._calls,
            "work": self._work,
            "frames": self._frames,
            "memory": self._memory,
            "syncs": self._syncs,
            "others": self._others,
        }

    def add(self, events: Iterable[Event]) -> None:
        """Take the events of a piece."""
        lists: dict[str, list[Event]] = {group: [] for group in TABLES}
        append = {category: lists[group].append for category, group in GROUPS.items()}
        for event in events:
            if event.ph == "X" and event.cat != MEMORY:
                (append.get(event.cat) or lists[group_of(event)].append)(event)
            elif is_memory(event):
                lists["memory"].append(event)
        for group, batch in lists.items():
            if batch:
                self._parts[group].append(self._makers[group](batch))

    def table(self, group: str) -> Any:
        """The finished table of a group; its pieces go, and wrong times are counted."""
        parts = self._parts.pop(group)
        names = schema(TABLES[group])
        if not parts:
            return TABLES[group](*(np.empty(0, dtype) for _, dtype in names))
        columns = [np.concatenate([part[place] for part in parts]) for place in range(len(names))]
        parts.clear()
        good = np.abs(columns[0]) < TIME_LIMIT_US
        if names[1][0] == "end":
            good &= columns[1] < TIME_LIMIT_US
        if not good.all():
            self.absurd += int(len(good) - good.sum())
            columns = [column[good] for column in columns]
        start = columns[0] = nanoseconds(columns[0])
        if names[1][0] == "end":
            columns[1] = start + nanoseconds(np.maximum(columns[1], 0))
        return TABLES[group](*columns)

    def _base(self, batch: Sequence[Event]) -> Columns:
        """Starts and durations in us, as they are written, and names."""
        return (
            np.fromiter([event.ts for event in batch], np.float64, len(batch)),
            np.fromiter([event.dur for event in batch], np.float64, len(batch)),
            np.fromiter(
                map(self.names.__getitem__, [event.name for event in batch]), np.int32, len(batch)
            ),
        )

    def _thread(self, batch: Sequence[Event]) -> NDArray[np.int32]:
        pids, tids = [event.pid for event in batch], [event.tid for event in batch]
        # nearly always: neighbours in a file are of one thread
        if pids.count(pids[0]) == tids.count(tids[0]) == len(batch):
            return np.full(len(batch), self.threads[pids[0], tids[0]], np.int32)
        return np.fromiter(
            map(self.threads.__getitem__, zip(pids, tids, strict=True)), np.int32, len(batch)
        )

    def _text(self, values: list[Any]) -> NDArray[np.int32]:
        # none of them given, or all of them empty: the usual case, and cheap
        if values.count(values[0]) == len(values):
            return np.full(len(values), self.texts[bytes(values[0])], np.int32)
        # 3 times faster than bytes() of each; no JSON text holds a NUL
        texts = b"\0".join(values).split(b"\0")
        if len(texts) != len(values):
            texts = list(map(bytes, values))
        return np.fromiter(map(self.texts.__getitem__, texts), np.int32, len(values))

    def _operators(self, batch: Sequence[Event]) -> Columns:
        args = [event.args for event in batch]
        return (
            *self._base(batch),
            self._thread(batch),
            np.fromiter([event.cat == ANNOTATION for event in batch], np.bool_, len(batch)),
            _codes([arg.forward_thread for arg in args]),
            self._text([arg.shapes if arg.old_shapes is EMPTY else arg.old_shapes for arg in args]),
            self._text([arg.types for arg in args]),
        )

    def _calls(self, batch: Sequence[Event]) -> Columns:
        return (
            *self._base(batch),
            self._thread(batch),
            _ints([event.args.correlation for event in batch]),
        )

    def _work(self, batch: Sequence[Event]) -> Columns:
        args = [event.args for event in batch]
        kind = np.fromiter([WORK[event.cat] for event in batch], np.int8, len(batch))
        bytes_ = _ints([arg.bytes for arg in args])
        correlation = _ints([arg.correlation for arg in args])
        return (
            *self._base(batch),
            kind,
            _devices(batch),
            _ints([_stream(event) for event in batch]),
            correlation,
            bytes_,
        )

    def _frames(self, batch: Sequence[Event]) -> Columns:
        return (*self._base(batch), self._thread(batch))

    def _memory(self, batch: Sequence[Event]) -> Columns:
        args = [event.args for event in batch]
        return (
            np.fromiter([event.ts for event in batch], np.float64, len(batch)),
            np.fromiter(
                map(self.names.__getitem__, [event.name for event in batch]), np.int32, len(batch)
            ),
            self._thread(batch),
            _ints([arg.memory_bytes for arg in args]),
            _ints([arg.allocated for arg in args]),
            _ints([arg.reserved for arg in args]),
            np.fromiter([small(arg.device_type, 7) for arg in args], np.int8, len(args)),
            _codes([arg.device_id for arg in args]),
        )

    def _syncs(self, batch: Sequence[Event]) -> Columns:
        args = [event.args for event in batch]
        return (
            *self._base(batch),
            _devices(batch),
            _ints([arg.stream for arg in args]),
            _ints([arg.correlation for arg in args]),
        )

    def _others(self, batch: Sequence[Event]) -> Columns:
        categories = np.fromiter(
            map(self.names.__getitem__, [event.cat for event in batch]), np.int32, len(batch)
        )
        return (*self._base(batch), categories, self._thread(batch))


def nanoseconds(microseconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Exact to the nanosecond for text with three decimals; ``round(us * 1000)`` is off by one in a
    quarter of the cases.
    """
    whole = np.floor(microseconds)
    result: NDArray[np.int64] = whole.astype(np.int64) * 1000 + np.rint(
        (microseconds - whole) * 1000
    ).astype(np.int64)
    return result


def _ints(values: list[Any]) -> NDArray[np.int64]:
    """Numbers as a column; what is none, or too large, is -1."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(whole, values), np.int64, len(values))


def _codes(values: list[Any]) -> NDArray[np.int32]:
    try:
        return np.fromiter(values, np.int32, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(small, values), np.int32, len(values))


def _stream(event: Event) -> Any:
    given = event.args.stream
    return last_number(event.tid) if given == -1 else given


def _devices(batch: Sequence[Event]) -> NDArray[np.int32]:
    """Device of each event: its argument, else its process, which is how devices are shown."""
    given = _codes([event.args.device for event in batch])
    if (given < 0).any():
        return np.where(given < 0, _codes([event.pid for event in batch]), given)
    return given
