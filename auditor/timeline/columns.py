"""Decoded events to columns, piece by piece, so that no piece's objects outlive it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auditor.timeline import events as ev
from auditor.timeline.loose import small, whole
from auditor.timeline.trace import TABLES, Thread, schema

TIME_LIMIT_US = 4.0e15
"""Microseconds (the year 2096 as epoch time): a later time is taken for damage."""
NAME_LIMIT = 4096
TEXT_LIMIT = 1 << 16
"""Characters of one name, and bytes of one shape or stack text, that are kept."""
TOTAL_LIMIT = 512 << 20
"""Characters of all different names that are kept; later ones share one name."""

Columns = tuple[NDArray[Any], ...]


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


_GROUPS: dict[str, tuple[type[Any], ...]] = {
    "operators": (ev.Operator, ev.OldOperator, ev.Annotation),
    "calls": (ev.Call, ev.DriverCall, ev.OldCall),
    "work": (ev.Kernel, ev.Memcpy, ev.Memset, ev.OldKernel, ev.OldMemcpy, ev.OldMemset),
    "marks": (ev.Mark,),
    "frames": (ev.Frame,),
    "memory": (ev.Memory,),
    "syncs": (ev.Sync,),
    "others": (ev.Span,),
}
_FLOWS: tuple[type[ev.Flow], ...] = (ev.Flow, ev.BackwardFlow, ev.OldFlow, ev.OldestFlow)


class Builder:
    """Collects columns. :meth:`add` raises on a value that fits no column, and then has added
    nothing.
    """

    def __init__(self) -> None:
        self.names = Numbered(NAME_LIMIT, "")
        self.texts = Numbered(TEXT_LIMIT, b"")
        self.texts[b""] = -1
        self.threads = NumberedThreads()
        self.clock = EpochClock()
        self.counts: Counter[str] = Counter()
        self.absurd = 0
        """Spans left out because their time cannot be: beyond 2096, or not a number."""
        self.negative = 0
        """Spans whose end was before their start: kept as instants."""
        self._parts: dict[str, list[Columns]] = {group: [] for group in TABLES}
        self._makers: dict[str, Callable[[Sequence[Any]], Columns]] = {
            "operators": self._operators,
            "calls": self._calls,
            "work": self._work,
            "marks": self._marks,
            "frames": self._frames,
            "memory": self._memory,
            "syncs": self._syncs,
            "others": self._others,
        }

    def add(self, events: Iterable[Any]) -> None:
        """Take the events of a piece."""
        lists: dict[str, list[Any]] = {group: [] for group in _GROUPS}
        flows: dict[str, list[Any]] = {kind.category: [] for kind in _FLOWS}
        append = {kind: lists[group].append for group, kinds in _GROUPS.items() for kind in kinds}
        append.update({kind: flows[kind.category].append for kind in _FLOWS})
        for event in events:
            append[type(event)](event)
        made = {group: self._makers[group](batch) for group, batch in lists.items() if batch}
        for group, columns in made.items():
            self._parts[group].append(columns)
        self.counts.update({category: len(batch) for category, batch in flows.items() if batch})

    def table(self, group: str) -> Any:
        """The finished table of a group; its pieces are given up, and what was wrong with times is
        counted.
        """
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
        start = columns[0] = self.clock.restore(nanoseconds(columns[0]))
        if names[1][0] == "end":
            self.negative += int((columns[1] < 0).sum())
            columns[1] = start + nanoseconds(np.maximum(columns[1], 0))
        return TABLES[group](*columns)

    def _base(self, batch: Sequence[Any]) -> Columns:
        """Starts and durations in us, as they are written, and names."""
        return (
            np.fromiter([event.ts for event in batch], np.float64, len(batch)),
            np.fromiter([event.dur for event in batch], np.float64, len(batch)),
            np.fromiter(
                map(self.names.__getitem__, [event.name for event in batch]), np.int32, len(batch)
            ),
        )

    def _thread(self, batch: Sequence[Any]) -> NDArray[np.int32]:
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

    def _operators(self, batch: Sequence[Any]) -> Columns:
        args = [event.args for event in batch]
        return (
            *self._base(batch),
            self._thread(batch),
            np.fromiter([event.annotation for event in batch], np.bool_, len(batch)),
            _ints([arg.sequence for arg in args]),
            _codes([arg.forward_thread for arg in args]),
            self._text(
                [arg.shapes if arg.old_shapes is ev.EMPTY else arg.old_shapes for arg in args]
            ),
            self._text([arg.types for arg in args]),
            self._text([arg.stack for arg in args]),
        )

    def _calls(self, batch: Sequence[Any]) -> Columns:
        return (
            *self._base(batch),
            self._thread(batch),
            _ints([event.args.correlation for event in batch]),
        )

    def _work(self, batch: Sequence[Any]) -> Columns:
        args = [event.args for event in batch]
        kind = np.fromiter([event.kind for event in batch], np.int8, len(batch))
        bytes_ = _ints([arg.bytes for arg in args])
        correlation = _ints([arg.correlation for arg in args])
        return (
            *self._base(batch),
            kind,
            _devices(batch, args),
            _ints([arg.stream for arg in args]),
            correlation,
            bytes_,
        )

    def _marks(self, batch: Sequence[Any]) -> Columns:
        device = _codes([small(event.pid) for event in batch])
        return (
            *self._base(batch),
            device,
            _ints([whole(str(event.tid).rpartition(" ")[2]) for event in batch]),
        )

    def _frames(self, batch: Sequence[Any]) -> Columns:
        return (*self._base(batch), self._thread(batch))

    def _memory(self, batch: Sequence[Any]) -> Columns:
        args = [event.args for event in batch]
        return (
            np.fromiter([event.ts for event in batch], np.float64, len(batch)),
            np.fromiter(
                map(self.names.__getitem__, [event.name for event in batch]), np.int32, len(batch)
            ),
            self._thread(batch),
            _ints([arg.bytes for arg in args]),
            _ints([arg.allocated for arg in args]),
            _ints([arg.reserved for arg in args]),
            np.fromiter([arg.device_type for arg in args], np.int8, len(args)),
            _codes([arg.device for arg in args]),
        )

    def _syncs(self, batch: Sequence[Any]) -> Columns:
        args = [event.args for event in batch]
        return (
            *self._base(batch),
            _devices(batch, args),
            _ints([arg.stream for arg in args]),
            _ints([arg.correlation for arg in args]),
        )

    def _others(self, batch: Sequence[Any]) -> Columns:
        categories = np.fromiter(
            map(self.names.__getitem__, [event.category for event in batch]), np.int32, len(batch)
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


def _ints(values: list[int]) -> NDArray[np.int64]:
    return np.fromiter(values, np.int64, len(values))


def _codes(values: list[int]) -> NDArray[np.int32]:
    return np.fromiter(values, np.int32, len(values))


def _devices(batch: Sequence[Any], args: list[Any]) -> NDArray[np.int32]:
    """Device of each event: its argument, else its process, which is how devices are shown."""
    given = _codes([arg.device for arg in args])
    if (given < 0).any():
        return _codes(
            [
                small(event.pid) if device < 0 else device
                for event, device in zip(batch, given.tolist(), strict=True)
            ]
        )
    return given


# -- epoch -----------------------------------------------------------------------------------------
# Times as microseconds since 1970 with three decimals (Kineto before 2024) do not fit a float64:
# it steps by 0.25 us there.


_LONG = re.compile(rb'("ts": ?)(\d{4})\d{12}\.\d')
_MARK = 10**12
"""Microseconds that stand for the digits taken off: a short time lies between this and twice this,
where floats are exact.
"""


class EpochClock:
    """Shortens the times of a trace that needs it; other traces pass untouched."""

    def __init__(self) -> None:
        self._pattern: re.Pattern[bytes] | None = None
        self._short = b""
        self._shift_us = 0
        self._looked = False

    def shorten(self, piece: bytes) -> bytes:
        """The piece with short times."""
        if not self._looked and b'"ts"' in piece:
            self._looked = True
            if found := _LONG.search(piece):
                # begins literally: 3 times faster
                self._pattern = re.compile(found[1] + found[2] + rb"(?=\d{12}\.)")
                self._short = found[1] + b"1"
                self._shift_us = int(found[2]) * _MARK - _MARK
        return self._pattern.sub(self._short, piece) if self._pattern else piece

    def restore(self, ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Nanoseconds of decoded times, with what was taken off."""
        if not self._shift_us:
            return ns
        short = (ns >= _MARK * 1000) & (ns < 2 * _MARK * 1000)
        result: NDArray[np.int64] = ns + np.where(short, self._shift_us * 1000, 0)
        return result
