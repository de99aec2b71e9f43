"""Decoded events to columns, piece by piece, so that no piece's objects outlive it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auditor.timeline import events as ev
from auditor.timeline.epoch import EpochClock
from auditor.timeline.loose import whole
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
    """Values to codes in order of appearance; over-long ones are cut, and beyond the total limit share the code of ``""``."""

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
    """Collects columns. :meth:`add` raises on a value that fits no column, and then has added nothing."""

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
        absurd, negative = self.absurd, self.negative
        try:
            made = {group: self._makers[group](batch) for group, batch in lists.items() if batch}
        except (ValueError, TypeError, OverflowError):
            self.absurd, self.negative = absurd, negative
            raise
        for group, columns in made.items():
            self._parts[group].append(columns)
        self.counts.update({category: len(batch) for category, batch in flows.items() if batch})

    def table(self, group: str) -> Any:
        """The finished table of a group; its pieces are given up."""
        parts = self._parts.pop(group)
        names = schema(TABLES[group])
        if not parts:
            return TABLES[group](*(np.empty(0, dtype) for _, dtype in names))
        columns = [np.concatenate([part[place] for part in parts]) for place in range(len(names))]
        return TABLES[group](*columns)

    def _times(self, batch: Sequence[Any]) -> tuple[Sequence[Any], NDArray[np.int64], NDArray[np.int64]]:
        """The events whose times can be, their starts and their ends in ns."""
        size = len(batch)
        start = np.fromiter([event.ts for event in batch], np.float64, size)
        dur = np.fromiter([event.dur for event in batch], np.float64, size)
        good = (np.abs(start) < TIME_LIMIT_US) & (dur < TIME_LIMIT_US)
        if not good.all():
            self.absurd += int(size - good.sum())
            batch = [event for event, keep in zip(batch, good.tolist(), strict=True) if keep]
            start, dur = start[good], dur[good]
        if (dur < 0).any():
            self.negative += int((dur < 0).sum())
            dur = np.maximum(dur, 0)
        begin = self.clock.restore(nanoseconds(start))
        return batch, begin, begin + nanoseconds(dur)

    def _base(self, batch: Sequence[Any]) -> tuple[Sequence[Any], Columns]:
        """The events whose times can be; start, end, name."""
        batch, start, end = self._times(batch)
        names = np.fromiter(map(self.names.__getitem__, [event.name for event in batch]), np.int32, len(batch))
        return batch, (start, end, names)

    def _thread(self, batch: Sequence[Any]) -> NDArray[np.int32]:
        keys = zip([event.pid for event in batch], [event.tid for event in batch], strict=True)
        return np.fromiter(map(self.threads.__getitem__, keys), np.int32, len(batch))

    def _text(self, values: list[Any]) -> NDArray[np.int32]:
        if values.count(ev.EMPTY) == len(values):  # compares identities: the usual case, and cheap
            return np.full(len(values), -1, np.int32)
        return np.fromiter(map(self.texts.__getitem__, map(bytes, values)), np.int32, len(values))

    def _operators(self, batch: Sequence[Any]) -> Columns:
        batch, base = self._base(batch)
        args = [event.args for event in batch]
        return (
            *base,
            self._thread(batch),
            np.fromiter([event.annotation for event in batch], np.bool_, len(batch)),
            _ints([arg.sequence for arg in args]),
            _codes([arg.forward_thread for arg in args]),
            self._text([arg.shapes if arg.old_shapes is ev.EMPTY else arg.old_shapes for arg in args]),
            self._text([arg.types for arg in args]),
            self._text([arg.stack for arg in args]),
        )

    def _calls(self, batch: Sequence[Any]) -> Columns:
        batch, base = self._base(batch)
        return (*base, self._thread(batch), _ints([event.args.correlation for event in batch]))

    def _work(self, batch: Sequence[Any]) -> Columns:
        batch, base = self._base(batch)
        args = [event.args for event in batch]
        kind = np.fromiter([event.kind for event in batch], np.int8, len(batch))
        bytes_ = _ints([arg.bytes for arg in args])
        correlation = _ints([arg.correlation for arg in args])
        return (*base, kind, _devices(batch, args), _ints([arg.stream for arg in args]), correlation, bytes_)

    def _marks(self, batch: Sequence[Any]) -> Columns:
        batch, base = self._base(batch)
        device = _codes([whole(event.pid) for event in batch])
        return (*base, device, _ints([whole(str(event.tid).rpartition(" ")[2]) for event in batch]))

    def _frames(self, batch: Sequence[Any]) -> Columns:
        batch, base = self._base(batch)
        return (*base, self._thread(batch))

    def _memory(self, batch: Sequence[Any]) -> Columns:
        start = np.fromiter([event.ts for event in batch], np.float64, len(batch))
        good = np.abs(start) < TIME_LIMIT_US
        if not good.all():
            self.absurd += int(len(batch) - good.sum())
            batch = [event for event, keep in zip(batch, good.tolist(), strict=True) if keep]
        args = [event.args for event in batch]
        return (
            self.clock.restore(nanoseconds(start[good])),
            np.fromiter(map(self.names.__getitem__, [event.name for event in batch]), np.int32, len(batch)),
            self._thread(batch),
            _ints([arg.bytes for arg in args]),
            _ints([arg.allocated for arg in args]),
            _ints([arg.reserved for arg in args]),
            _ints([arg.device_type for arg in args]).clip(-1, 127).astype(np.int8),
            _codes([arg.device for arg in args]),
        )

    def _syncs(self, batch: Sequence[Any]) -> Columns:
        batch, base = self._base(batch)
        args = [event.args for event in batch]
        return (*base, _devices(batch, args), _ints([arg.stream for arg in args]), _ints([arg.correlation for arg in args]))

    def _others(self, batch: Sequence[Any]) -> Columns:
        batch, base = self._base(batch)
        categories = np.fromiter(map(self.names.__getitem__, [event.category for event in batch]), np.int32, len(batch))
        return (*base, categories, self._thread(batch))


def nanoseconds(microseconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Exact to the nanosecond for text with three decimals; ``round(us * 1000)`` is off by one in a quarter of the cases."""
    whole = np.floor(microseconds)
    result: NDArray[np.int64] = whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)
    return result


def _ints(values: list[int]) -> NDArray[np.int64]:
    return np.fromiter(values, np.int64, len(values))


def _codes(values: list[int]) -> NDArray[np.int32]:
    return _ints(values).clip(-(2**31), 2**31 - 1).astype(np.int32)


def _devices(batch: Sequence[Any], args: list[Any]) -> NDArray[np.int32]:
    """Device of each event: its argument, else its process, which is how devices are shown."""
    given = _ints([arg.device for arg in args])
    if (given < 0).any():
        given = _ints([whole(event.pid) if device < 0 else device for event, device in zip(batch, given.tolist(), strict=True)])
    return given.clip(-1, 2**31 - 1).astype(np.int32)
