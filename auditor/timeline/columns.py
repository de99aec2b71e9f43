"""Decoded events to columns, piece by piece, so that no piece's objects outlive it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auditor.timeline import events as ev
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
        self._makers: dict[str, Callable[[Sequence[ev.Event]], Columns]] = {
            "operators": self._operators,
            "calls": self._calls,
            "work": self._work,
            "frames": self._frames,
            "memory": self._memory,
            "syncs": self._syncs,
            "others": self._others,
        }

    def add(self, events: Iterable[ev.Event]) -> None:
        """Take the events of a piece."""
        lists: dict[str, list[ev.Event]] = {group: [] for group in TABLES}
        append = {category: lists[group].append for category, group in ev.GROUPS.items()}
        for event in events:
            if event.ph == "X" and event.cat != ev.MEMORY:
                (append.get(event.cat) or lists[ev.group(event)].append)(event)
            elif ev.is_memory(event):
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

    def _base(self, batch: Sequence[ev.Event]) -> Columns:
        """Starts and durations in us, as they are written, and names."""
        return (
            np.fromiter([event.ts for event in batch], np.float64, len(batch)),
            np.fromiter([event.dur for event in batch], np.float64, len(batch)),
            np.fromiter(
                map(self.names.__getitem__, [event.name for event in batch]), np.int32, len(batch)
            ),
        )

    def _thread(self, batch: Sequence[ev.Event]) -> NDArray[np.int32]:
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

    def _operators(self, batch: Sequence[ev.Event]) -> Columns:
        args = [event.args for event in batch]
        return (
            *self._base(batch),
            self._thread(batch),
            np.fromiter([event.cat == ev.ANNOTATION for event in batch], np.bool_, len(batch)),
            _codes([arg.forward_thread for arg in args]),
            self._text(
                [arg.shapes if arg.old_shapes is ev.EMPTY else arg.old_shapes for arg in args]
            ),
            self._text([arg.types for arg in args]),
        )

    def _calls(self, batch: Sequence[ev.Event]) -> Columns:
        return (
            *self._base(batch),
            self._thread(batch),
            _ints([event.args.correlation for event in batch]),
        )

    def _work(self, batch: Sequence[ev.Event]) -> Columns:
        args = [event.args for event in batch]
        kind = np.fromiter([ev.WORK[event.cat] for event in batch], np.int8, len(batch))
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

    def _frames(self, batch: Sequence[ev.Event]) -> Columns:
        return (*self._base(batch), self._thread(batch))

    def _memory(self, batch: Sequence[ev.Event]) -> Columns:
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
            np.fromiter([ev.small(arg.device_type, 7) for arg in args], np.int8, len(args)),
            _codes([arg.device_id for arg in args]),
        )

    def _syncs(self, batch: Sequence[ev.Event]) -> Columns:
        args = [event.args for event in batch]
        return (
            *self._base(batch),
            _devices(batch),
            _ints([arg.stream for arg in args]),
            _ints([arg.correlation for arg in args]),
        )

    def _others(self, batch: Sequence[ev.Event]) -> Columns:
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
        return np.fromiter(map(ev.whole, values), np.int64, len(values))


def _codes(values: list[Any]) -> NDArray[np.int32]:
    try:
        return np.fromiter(values, np.int32, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.fromiter(map(ev.small, values), np.int32, len(values))


def _stream(event: ev.Event) -> Any:
    given = event.args.stream
    return ev.last_number(event.tid) if given == -1 else given


def _devices(batch: Sequence[ev.Event]) -> NDArray[np.int32]:
    """Device of each event: its argument, else its process, which is how devices are shown."""
    given = _codes([event.args.device for event in batch])
    if (given < 0).any():
        return np.where(given < 0, _codes([event.pid for event in batch]), given)
    return given
