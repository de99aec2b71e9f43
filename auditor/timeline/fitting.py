"""The tolerant way: any event, in any spelling since 2021, into the struct of its kind."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from msgspec import Struct

from auditor.timeline import events as ev
from auditor.timeline.loose import Loose, LooseArgs, label, real, small, text, whole

_KINDS: dict[str, type[Struct]] = {
    "cpu_op": ev.Operator,
    "Operator": ev.Operator,
    "user_annotation": ev.Annotation,
    "kernel": ev.Kernel,
    "Kernel": ev.Kernel,
    "gpu_memcpy": ev.Memcpy,
    "Memcpy": ev.Memcpy,
    "gpu_memset": ev.Memset,
    "Memset": ev.Memset,
    "Runtime": ev.Call,
    "gpu_user_annotation": ev.Mark,
    "python_function": ev.Frame,
    "cuda_sync": ev.Sync,
}
_CALLS = frozenset(
    f"{maker}_{part}"
    for maker in ("cuda", "hip", "xpu", "privateuse1")
    for part in ("runtime", "driver")
)
_LEGACY_DEVICE = "CUDA functions"
_NO_ARGS = LooseArgs()


class Fitting:
    """Turns :class:`Loose` events into the structs of their kinds; pairs begins with ends; counts
    what holds no span.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.timeless = 0
        """Spans without a usable time."""
        self._open: dict[tuple[str, str], list[Loose]] = {}

    @property
    def unended(self) -> int:
        """Begins whose end never came."""
        return sum(map(len, self._open.values()))

    def fit(self, event: Loose) -> Struct | None:
        """The event as the struct of its kind; None if it holds no span (then it is counted)."""
        phase = event.ph if isinstance(event.ph, str) else ""
        args = event.args or _NO_ARGS
        if args.memory_bytes is not None and (
            phase in {"i", "I"} or event.cat == "cpu_instant_event"
        ):
            return self._memory(event, args)
        if phase == "X":
            return self._span(event, real(event.dur) if event.dur is not None else 0.0)
        if phase in {"B", "E"}:
            return self._paired(event, phase)
        self.counts[text(event.cat) or f"ph {phase[:8]}"] += 1
        return None

    def _paired(self, event: Loose, phase: str) -> Struct | None:
        begun = self._open.setdefault((str(event.pid), str(event.tid)), [])
        if phase == "B":
            begun.append(event)
            return None
        if not begun:
            self.counts["ph E"] += 1
            return None
        begin = begun.pop()
        return self._span(begin, real(event.ts) - real(begin.ts))

    def _memory(self, event: Loose, args: LooseArgs) -> Struct | None:
        time = real(event.ts)
        if not math.isfinite(time):
            self.timeless += 1
            return None
        size, allocated, reserved = map(whole, (args.memory_bytes, args.allocated, args.reserved))
        numbers = ev.MemoryArgs(
            size, allocated, reserved, small(args.device_type, bits=7), small(args.device_id)
        )
        return ev.Memory(text(event.name), label(event.tid), time, numbers, label(event.pid))

    def _span(self, event: Loose, dur: float) -> Struct | None:
        time = real(event.ts)
        if not (math.isfinite(time) and math.isfinite(dur)):
            self.timeless += 1
            return None
        args = event.args or _NO_ARGS
        category = text(event.cat)
        kind = _KINDS.get(category) or _guess(category, event, args)
        where = (text(event.name), label(event.tid), time, dur, label(event.pid))
        if kind is ev.Span:
            return ev.Span(*where, category)
        rest = _arguments(kind, event, args)
        return kind(*where) if rest is None else kind(*where, rest)


def _guess(category: str, event: Loose, args: LooseArgs) -> type[Struct]:
    """Kind of a span whose category is not in the table. Without any category, its arguments
    tell.
    """
    if category in _CALLS:
        return ev.Call
    if category:
        return ev.Span
    if event.pid == _LEGACY_DEVICE or (args.stream is not None and args.device is not None):
        name = text(event.name)
        return (
            ev.Memcpy
            if name.startswith("Memcpy")
            else ev.Memset
            if name.startswith("Memset")
            else ev.Kernel
        )
    return ev.Call if args.correlation is not None else ev.Operator


def _arguments(kind: type[Struct], event: Loose, args: LooseArgs) -> Any:
    if issubclass(kind, ev.Operator):
        numbers = whole(args.sequence), small(args.forward_thread)
        return ev.OperatorArgs(*numbers, args.shapes, args.types, args.stack, args.old_shapes)
    if issubclass(kind, ev.Call):
        return ev.CallArgs(whole(args.correlation))
    if issubclass(kind, ev.Kernel):
        return ev.WorkArgs(
            small(args.device), _stream(event, args), whole(args.correlation), whole(args.bytes)
        )
    if issubclass(kind, ev.Sync):
        return ev.SyncArgs(small(args.device), whole(args.stream), whole(args.correlation))
    return None


def _stream(event: Loose, args: LooseArgs) -> int:
    """The stream; where the arguments lack it, the number in a thread named ``stream 7``, or the
    thread's own.
    """
    if args.stream is not None:
        return whole(args.stream)
    return whole(str(event.tid).rpartition(" ")[2])
