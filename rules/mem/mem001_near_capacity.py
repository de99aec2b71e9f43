"""MEM001: the step needs nearly all of the device's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import HOST, timeline_of
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.timeline import Timeline

from collections.abc import Iterator

from auditor import amounts
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class DeviceMemoryNearlyFull(Rule):
    """Tensors need nearly all of the device's memory."""

    code = "MEM001"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.90, "Share of the device's memory that tensors need at once from which it is a warning."
    )
    severe: float = knob(
        0.97, "The same from which it is an error, and from which held memory alone is a note."
    )

    def detect(self, memory: TraceMemory) -> Iterator[Finding]:
        for device in memory.devices:
            if device.share < self.share and device.reserved_share < self.severe:
                continue
            full = device.share >= self.share
            needed = (
                f"tensors need {amounts.percent(device.share)} of the memory of "
                f"{device.name or f'device {device.device}'} at once"
            )
            held = (
                f"the allocator holds {amounts.percent(device.reserved_share)} of the device, "
                f"tensors need {amounts.percent(device.share)}"
            )
            yield Finding(
                None,
                needed if full else held,
                seen_on="trace",
                severity=self._severity(device) if full and memory.marked else Severity.NOTE,
                facts=(
                    ("peak allocated", amounts.size(device.allocated)),
                    ("peak reserved", amounts.size(device.reserved)),
                    ("device", amounts.size(device.capacity)),
                ),
            )

    def _severity(self, device: DevicePeak) -> Severity | None:
        return Severity.ERROR if device.share >= self.severe else None

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Accumulate gradients over smaller batches, or checkpoint activations; a memory "
            "snapshot shows what holds it."
        )


# -- capacity --------------------------------------------------------------------------------------
# How near the devices of a trace came to their capacity.


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
