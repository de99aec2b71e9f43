"""How near the devices of a trace came to their capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import HOST, timeline_of
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.timeline import Timeline


@dataclass(frozen=True)
class DevicePeak:
    """One device's memory in bytes: the peaks of torch's allocator, and what the device has
    (``totalGlobalMem``).
    """

    device: int
    name: str
    allocated: int
    reserved: int
    capacity: int

    @property
    def share(self) -> float:
        """Share of the device that tensors needed at once."""
        return self.allocated / self.capacity

    @property
    def reserved_share(self) -> float:
        """Share of the device that the allocator held, cached blocks included."""
        return self.reserved / self.capacity


@dataclass(frozen=True)
class TraceMemory(Table):
    """Devices whose memory was profiled and whose capacity the trace tells. ``marked`` says whether
    the trace shows steps.
    """

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    devices: tuple[DevicePeak, ...] = ()
    marked: bool = True

    @classmethod
    def build(cls, evidence: Evidence) -> TraceMemory:
        """From memory events. Raises :class:`NotLooked` where they are missing or a device's size
        is.
        """
        line = timeline_of(evidence)
        if not line.devices:
            raise NotLooked("the trace shows no GPU")
        if not any(use.device_type != HOST for use in line.memory):
            raise NotLooked(
                "the trace holds no memory events of a GPU: torch.profiler writes them with "
                "profile_memory=True"
            )
        devices = tuple(_peaks(line))
        if not devices:
            raise NotLooked(
                "the trace does not tell totals of memory (torch before 1.11), or not the device's "
                "capacity"
            )
        return cls(devices, line.steps.marked)


def _peaks(line: Timeline) -> list[DevicePeak]:
    known = {device.index: device for device in line.trace.info.devices if device.memory_bytes > 0}
    return [
        DevicePeak(
            use.device,
            known[use.device].name,
            use.peak_allocated,
            use.peak_reserved,
            known[use.device].memory_bytes,
        )
        for use in line.memory
        if use.device_type != HOST and use.peak_allocated >= 0 and use.device in known
    ]
