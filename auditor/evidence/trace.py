"""What the profiler's trace says: operators by self time, and the peak of host tensor memory."""

from __future__ import annotations

import gzip
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from auditor.recording import Recording

RAW_LIMIT = 1 << 30
"""Bytes of uncompressed trace that are read at most (a recording may come from a stranger)."""

STEP_MARK = "ProfilerStep#"


class _Args(msgspec.Struct, gc=False, frozen=True):
    total_allocated: int | None = msgspec.field(default=None, name="Total Allocated")
    device_type: int | None = msgspec.field(default=None, name="Device Type")


class _Event(msgspec.Struct, gc=False):
    name: str = ""
    cat: str = ""
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: _Args | None = None


class _File(msgspec.Struct, gc=False):
    events: list[_Event] = msgspec.field(name="traceEvents", default_factory=list)


@dataclass(frozen=True)
class Operator:
    """One operator over the traced steps: calls per step and self time in us per step, under the profiler."""

    name: str
    calls: float
    self_us: float


@dataclass(frozen=True)
class TraceFacts:
    """Facts of a trace. ``host_peak_bytes`` is the largest total that torch's CPU allocator reported, None without memory events."""

    steps: int
    events: int
    operators: tuple[Operator, ...]
    host_peak_bytes: int | None


def read(recording: Recording) -> TraceFacts | None:
    """Facts of the recording's own trace; None if there is none, or it cannot be read."""
    path = recording.folder / "trace.json.gz"
    return read_file(path) if path.is_file() else None


def read_file(path: Path) -> TraceFacts | None:
    """The same of a trace file by itself."""
    try:
        events = msgspec.json.decode(_inflate(path), type=_File, strict=False).events
    except (msgspec.DecodeError, OSError, EOFError, UnicodeDecodeError, RecursionError, zlib.error):
        return None
    steps = len({event.name for event in events if event.cat == "user_annotation" and event.name.startswith(STEP_MARK)})
    totals = [event.args.total_allocated or 0 for event in events if event.args is not None and event.args.device_type == 0]
    return TraceFacts(steps, len(events), tuple(_operators(events, max(1, steps))), max(totals, default=0) or None)


def _inflate(path: Path) -> bytes:
    try:
        from isal import igzip

        opened = igzip.open(path, "rb")
    except ImportError:
        opened = gzip.open(path, "rb")  # noqa: SIM115 - closed below
    with opened as file:
        raw: bytes = file.read(RAW_LIMIT)
    return raw


def _operators(events: list[_Event], steps: int) -> Iterator[Operator]:
    """Operators, largest self time first. An event's self time is its duration without its children's on the same thread."""
    calls: dict[str, int] = defaultdict(int)
    own: dict[str, float] = defaultdict(float)
    threads: dict[int | str, list[_Event]] = defaultdict(list)
    for event in events:
        if event.cat == "cpu_op":
            threads[event.tid].append(event)
    for thread in threads.values():
        thread.sort(key=lambda event: (event.ts, -event.dur))
        open_events: list[_Event] = []
        for event in thread:
            while open_events and open_events[-1].ts + open_events[-1].dur <= event.ts:
                open_events.pop()
            if open_events:
                own[open_events[-1].name] -= event.dur
            own[event.name] += event.dur
            calls[event.name] += 1
            open_events.append(event)
    for name in sorted(own, key=lambda name: -own[name]):
        yield Operator(name, calls[name] / steps, own[name] / steps)
