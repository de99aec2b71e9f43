"""MEM001: memory of the device nearly full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.evidence.recorded.step_pattern import Trend
from auditor.evidence.recorded.steps import Step, Steps
from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import HOST_MEMORY, timeline_of
from auditor.model import Finding, Severity
from auditor.rule import NotLooked, Rule, knob

if TYPE_CHECKING:
    from auditor.timeline import Timeline


@dataclass(frozen=True)
class HostMemory(Table):
    """Resident set of the process at the end of each quiet step, in bytes; ``usable`` is the RAM
    that it may use (0: unknown).
    """

    parts: ClassVar[tuple[str, ...]] = ("steps",)

    trend: Trend = field(default_factory=Trend)
    usable: int = 0

    @classmethod
    def build(cls, evidence: Evidence) -> HostMemory:
        """From the quiet pass: in the others the recorder's own memory is in the way."""
        said = str((evidence.recording.manifest.get("environment") or {}).get("host_memory", ""))
        usable = int(said) if said.isdecimal() else 0
        return cls(
            Trend(tuple(float(step.rss) for step in evidence.get(Steps).quiet if step.rss)), usable
        )


@dataclass(frozen=True)
class DeviceMemory(Table):
    """The CUDA allocator's counters in the quiet pass, or the loud one if it completed none."""

    parts: ClassVar[tuple[str, ...]] = ("steps",)

    steps: tuple[Step, ...] = ()
    ran_out: bool = False

    @classmethod
    def build(cls, evidence: Evidence) -> DeviceMemory:
        """From the quiet pass; without CUDA the table is empty."""
        steps = evidence.get(Steps)
        counted = tuple(step for step in steps.quiet or steps.loud if step.allocated is not None)
        return cls(counted, evidence.recording.manifest.get("outcome") == "oom")

    @property
    def trend(self) -> Trend:
        """Allocated at the end of each step, in bytes."""
        return Trend(tuple(float(step.allocated or 0) for step in self.steps))

    @property
    def peak_allocated(self) -> int:
        """Most bytes that tensors ever needed at once."""
        return max((step.peak_allocated or 0 for step in self.steps), default=0)

    @property
    def reserved_at_peak(self) -> int:
        """Bytes that the allocator held from the device after the (last) step with that peak."""
        return max(
            ((step.peak_allocated or 0, step.number, step.reserved or 0) for step in self.steps),
            default=(0, 0, 0),
        )[2]

    @property
    def unneeded_bytes(self) -> int:
        """Reserved bytes that no tensor needed even at the peak."""
        return max(0, self.reserved_at_peak - self.peak_allocated)

    @property
    def unneeded_share(self) -> float:
        """The same as a share of the reserved bytes."""
        return self.unneeded_bytes / self.reserved_at_peak if self.reserved_at_peak else 0.0

    @property
    def retries(self) -> int:
        """Times that the allocator gave cached blocks back to the device to serve a request."""
        return max((step.retries for step in self.steps), default=0)

    @property
    def ooms(self) -> int:
        """Times that it ran out of memory, also where the program caught the error."""
        return max(int(self.ran_out), max((step.ooms for step in self.steps), default=0))

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        return (
            ("peak allocated", amounts.size(self.peak_allocated)),
            ("reserved then", amounts.size(self.reserved_at_peak)),
            ("allocator retries", str(self.retries)),
            ("out of memory", str(self.ooms)),
        )

    def fragmented(self, *, share: float, least_bytes: int, share_if_pressed: float) -> bool:
        """True if much of the reserved memory was never needed; less will do if it ran short."""
        if self.retries or self.ooms:
            return self.unneeded_bytes > 0 and self.unneeded_share >= share_if_pressed
        return self.unneeded_bytes >= least_bytes and self.unneeded_share >= share


@dataclass(frozen=True)
class DeviceMemoryNearlyFull(Rule):
    """Tensors need nearly all of the device's memory."""

    code = "MEM001"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Use gradient accumulation over smaller batches, or checkpoint activations. A memory "
        "snapshot shows what holds the memory."
    )

    share: float = knob(0.90, "Warn if tensors need this share of the device's memory at once.")
    severe: float = knob(
        0.97, "Report an error from this share on; a note if only the allocator's cache reaches it."
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


# -- capacity --------------------------------------------------------------------------------------
# How near the devices of a trace came to their capacity.


@dataclass(frozen=True)
class DevicePeak:
    """One device's memory in bytes: torch's peaks, and its own (``totalGlobalMem``)."""

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
        """From memory events. Raises :class:`NotLooked` if they or a device's size are missing."""
        line = timeline_of(evidence)
        if not line.devices:
            raise NotLooked("the trace shows no GPU")
        if not any(use.device_type != HOST_MEMORY for use in line.memory):
            raise NotLooked(
                "the trace has no memory events of a GPU (torch.profiler records them with "
                "profile_memory=True)"
            )
        devices = tuple(_peaks(line))
        if not devices:
            raise NotLooked(
                "the trace lacks memory totals (torch before 1.11) or the device's capacity"
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
        if use.device_type != HOST_MEMORY and use.peak_allocated >= 0 and use.device in known
    ]
