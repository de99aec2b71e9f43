"""What the clock and the profiler ask of an accelerator: events, allocator counters, the end of all
work. One class for each.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.profiler import ProfilerActivity

from auditor.model.devices import DeviceInfo
from auditor.recordings.schema.run import Counters


class Accelerator(Protocol):
    """A kind of device, as torch's own code for it answers. Streams and events are torch's."""

    activity: ProfilerActivity
    """What torch.profiler calls its work."""

    def stream(self) -> Any:
        """The current stream of the current device; it has a ``device``."""

    def mark(self, stream: Any) -> Any:
        """An event at the end of what is queued on ``stream`` now; the host does not wait."""

    def us_between(self, begin: Any, end: Any, *, wait: bool) -> float | None:
        """Time between two events; None if the device cannot tell, or has not come so far where the
        host shall not ``wait``.
        """

    def counters(self) -> Counters:
        """Bytes and counts of the current device's allocator, as the ``steps`` part has them; no
        synchronisation.

        Raises RuntimeError or KeyError where the allocator in use keeps none.
        """

    def synchronize(self) -> None:
        """Wait for all work of the current device."""


class Cuda:
    """NVIDIA's, AMD's by ROCm, and the null device: whatever torch calls CUDA."""

    activity = ProfilerActivity.CUDA

    def stream(self) -> Any:
        """As :class:`Accelerator` says."""
        return torch.cuda.current_stream()

    def mark(self, stream: Any) -> Any:
        """As :class:`Accelerator` says."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event

    def us_between(self, begin: Any, end: Any, *, wait: bool) -> float | None:
        """As :class:`Accelerator` says: None also after an error of the device, and of events that
        went into a CUDA graph.
        """
        try:
            if wait:
                begin.synchronize()
                end.synchronize()
            elif not (begin.query() and end.query()):
                return None
            return float(begin.elapsed_time(end)) * 1e3
        except (RuntimeError, ValueError):
            return None

    def counters(self) -> Counters:
        """As :class:`Accelerator` says; they live on the host."""
        stats = torch.cuda.memory_stats_as_nested_dict()
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return {
            "allocated": allocated["current"],
            "reserved": reserved["current"],
            "peak_allocated": allocated["peak"],
            "peak_reserved": reserved["peak"],
            "retries": stats["num_alloc_retries"],
            "ooms": stats["num_ooms"],
        }

    def synchronize(self) -> None:
        """As :class:`Accelerator` says."""
        torch.cuda.synchronize()


ACCELERATORS: dict[str, Accelerator] = {"cuda": Cuda()}
"""By torch's device type. A further kind is one class here, and its type in
:data:`auditor.model.devices.KINDS`.
"""


def accelerator_of(device: DeviceInfo) -> Accelerator | None:
    """The class to ask; None on the host, on the shadow, and for unknown kinds."""
    return ACCELERATORS.get(device.kind) if device.native else None
