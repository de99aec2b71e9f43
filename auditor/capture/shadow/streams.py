"""Streams and events of the shadow: everything is done at once, so all are always ready."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Self

import torch

from auditor.capture.shadow.current import CUDA, PLAYING, tell
from auditor.capture.shadow.tensor import device_of


class Stream:
    """``torch.cuda.Stream``: work on it is done at once, in order."""

    _count = 0

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        Stream._count += 1
        self.cuda_stream = self.stream_id = Stream._count - 1
        self.device = CUDA
        self.device_index = 0
        self.device_type = 1
        self.priority = priority

    def synchronize(self) -> None:
        """The host waits for the stream."""
        tell("synchronize", "Stream.synchronize")

    def query(self) -> bool:
        """True: nothing is ever under way."""
        return True

    def ends_now(self) -> bool:
        """Whether waiting for it waits for all queued work: work goes to this stream."""
        return self == current_stream()

    def wait_stream(self, stream: Any) -> None:
        """Streams wait for each other on the device: no crossing."""

    def wait_event(self, event: Any) -> None:
        """As :meth:`wait_stream`."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event recorded here."""
        event = event or Event()
        event.record(self)
        return event

    def is_capturing(self) -> bool:
        """False: graphs are not captured here."""
        return False

    def __enter__(self) -> Self:
        _LOCAL.streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _LOCAL.streams.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash((Stream, self.stream_id))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={CUDA} cuda_stream={self.cuda_stream:#x}>"


class Event:
    """``torch.cuda.Event``: remembers the host's clock."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        **_: Any,
    ) -> None:
        self.device = CUDA
        self._timed = enable_timing
        self._at: float | None = None
        self._operators = -1

    def record(self, stream: Any = None) -> None:
        """Now."""
        self._at = time.perf_counter()
        self._operators = _operators()

    def synchronize(self) -> None:
        """The host waits for the event."""
        tell("synchronize", "Event.synchronize")

    def query(self) -> bool:
        """True: whatever was recorded has happened."""
        return True

    def ends_now(self) -> bool:
        """Whether waiting for it waits for all queued work: no operator ran since."""
        return self._operators == _operators()

    def wait(self, stream: Any = None) -> None:
        """A stream waits on the device: no crossing."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds of the host's clock between two recorded events."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._at is None or end_event._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._at - self._at) * 1e3


def _operators() -> int:
    return PLAYING[0].operators if PLAYING[0] is not None else 0


class _Local(threading.local):
    def __init__(self) -> None:
        self.streams = [DEFAULT]


DEFAULT = Stream()
_LOCAL = _Local()


def current_stream(device: Any = None) -> Stream:
    """The stream of this thread."""
    return _LOCAL.streams[-1]


def default_stream(device: Any = None) -> Stream:
    """The stream that a thread begins with."""
    return DEFAULT


def set_stream(stream: Stream | None) -> None:
    """Make ``stream`` the stream of this thread."""
    if stream is not None:
        _LOCAL.streams[-1] = stream


class StreamContext:
    """``with torch.cuda.stream(s)``; None does nothing, as in torch."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.stream is not None:
            self.stream.__exit__(kind, error, trace)


_Generator = torch.Generator


class _GeneratorType(type(_Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Generator)


class Generator(_Generator, metaclass=_GeneratorType):
    """``torch.Generator``: the device's draws the host's numbers."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """A generator of torch's for the host, one of ours for the device."""
        wanted = device_of(device)
        assert wanted is not None
        if wanted.type != "cuda":
            return _Generator(wanted)
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """``cuda:0``."""
        return CUDA
