"""An event of any shape, for what the exact structs refuse: every spelling since 2021, and values
of any type.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from auditor.timeline.events import EMPTY, Id


class LooseArgs(Struct, gc=False, frozen=True, forbid_unknown_fields=False):
    """Arguments of any event, of any type, in every spelling seen since 2021."""

    sequence: Any = field(default=None, name="Sequence number")
    forward_thread: Any = field(default=None, name="Fwd thread id")
    shapes: Raw = field(default=EMPTY, name="Input Dims")
    old_shapes: Raw = field(default=EMPTY, name="Input dims")
    types: Raw = field(default=EMPTY, name="Input type")
    stack: Raw = field(default=EMPTY, name="Call stack")
    correlation: Any = None
    device: Any = None
    stream: Any = None
    bytes: Any = None
    memory_bytes: Any = field(default=None, name="Bytes")
    allocated: Any = field(default=None, name="Total Allocated")
    reserved: Any = field(default=None, name="Total Reserved")
    device_type: Any = field(default=None, name="Device Type")
    device_id: Any = field(default=None, name="Device Id")


class Loose(Struct, gc=False):
    """Any event, of any types."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    ts: Any = None
    dur: Any = None
    tid: Any = None
    pid: Any = None
    args: LooseArgs | None = None


TOLERANT = msgspec.json.Decoder(list[Loose])
_LOOSE_ARGS = {entry.encode_name: entry.name for entry in msgspec.structs.fields(LooseArgs)}
_RAW_ARGS = {"shapes", "old_shapes", "types", "stack"}
_LOOSE_FIELDS = ("ph", "cat", "name", "ts", "dur", "tid", "pid")
_NO_ARGS = LooseArgs()


def loose(event: dict[str, Any]) -> Loose:
    """A decoded event as :class:`Loose`."""
    given = event.get("args")
    args = _NO_ARGS
    if isinstance(given, dict):
        known = {_LOOSE_ARGS[key]: value for key, value in given.items() if key in _LOOSE_ARGS}
        args = LooseArgs(
            **{key: _text_of(value) if key in _RAW_ARGS else value for key, value in known.items()}
        )
    return Loose(**{key: event.get(key) for key in _LOOSE_FIELDS}, args=args)


def _text_of(value: Any) -> Raw:
    try:
        return Raw(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError, OverflowError):
        return EMPTY


_LIMIT = 2**62


def whole(value: Any, default: int = -1) -> int:
    """``value`` as a number that fits a column, or the default. AMD writes some streams and sizes
    as text.
    """
    if isinstance(value, str):
        try:
            value = int(value, 0) if len(value) < 32 else default
        except ValueError:
            return default
    if isinstance(value, float):
        value = int(value) if math.isfinite(value) else default
    return value if isinstance(value, int) and -_LIMIT < value < _LIMIT else default


def small(value: Any, bits: int = 31) -> int:
    """``value`` as a number that fits a narrow column, or -1."""
    number = whole(value)
    return number if abs(number) < 1 << bits else -1


def real(value: Any) -> float:
    """``value`` as a float; NaN (which drops the event) where it is none."""
    if isinstance(value, (int, str)):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return math.nan
    return value if isinstance(value, float) else math.nan


def label(value: Any) -> Id:
    """A process's or thread's name."""
    return value if isinstance(value, (int, str)) else -1


def text(value: Any) -> str:
    """``value`` as a name that can be printed."""
    if not isinstance(value, str):
        return "" if value is None else str(value)[:200]
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
