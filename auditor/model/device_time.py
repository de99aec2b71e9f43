"""Where the time of a device went in a trace, as a report holds it. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A part of a step on the device. Parts do not overlap, and those of one device add up to the
    step.
    """

    name: str
    us: float
    share: float


@dataclass(frozen=True)
class CopyUse:
    """Copies of one kind, such as ``HtoD (Pageable -> Device)``: number, time on the device and
    bytes of each step.

    ``bytes`` is None where the trace does not say. Time that other work hides is in it.
    """

    kind: str
    per_step: float
    us: float
    bytes: float | None

    @property
    def gbs(self) -> float | None:
        """Rate in GB/s (1e9 bytes); None where it is not known."""
        return self.bytes / self.us / 1e3 if self.bytes and self.us else None


@dataclass(frozen=True)
class KernelUse:
    """One of the costliest kernels: calls and time of each step, and its share of the step
    (concurrent runs count twice).
    """

    name: str
    calls: float
    us: float
    share: float


@dataclass(frozen=True)
class QueueUse:
    """The launch queue: kernels that waited in it when another was launched (the usual number, and
    the most), and the share of kernels that found it empty.
    """

    median: int
    most: int
    empty: float


@dataclass(frozen=True)
class DeviceTime:
    """The device with the most work in a trace. Times are us of each step; of the time from its
    first work to its last where the trace marks no steps (``steps`` is 0 then).

    ``busy`` is the share (0 to 1) in which any work ran; ``communication_us`` the time of
    collectives, hidden or not. ``rank`` is whose trace it is, where the trace says so.
    """

    device: str
    steps: int
    step_us: float
    busy: float
    parts: tuple[Part, ...]
    communication_us: float
    copies: tuple[CopyUse, ...]
    queue: QueueUse | None
    kernels: tuple[KernelUse, ...]
    loader_us: float | None = None
    """Time in which the loop waited for its loader; None where the trace shows none."""
    held_us: float = 0.0
    """Time in which the host was held until the device had got there."""
    peak_bytes: int | None = None
    """Peak of torch's allocator; None where memory was not recorded."""
    rank: int | None = None

    def share_of(self, name: str) -> float:
        """Share of one part; 0 where there is none of that name."""
        return next((part.share for part in self.parts if part.name == name), 0.0)


COMPUTING, EXPOSED, COPYING, IDLE = (
    "computing",
    "communication that nothing hides",
    "copies that nothing hides",
    "idle",
)
"""Names of parts, in the order in which they are told."""
