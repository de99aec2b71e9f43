"""MEM001, 4, 5 and 9: memory nearly full, or held by the allocator and not by the program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.step_pattern import Trend
from auditor.evidence.recorded.steps import Step, Steps
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.state_at import Snapshot
from auditor.evidence.snapshot.what_if import WhatIf
from auditor.evidence.source.call_arguments import PLACES, Home, allocator_home
from auditor.evidence.source.config_values import Configs
from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import HOST_MEMORY, timeline_of
from auditor.model import Basis, Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob

if TYPE_CHECKING:
    from auditor.timeline import Timeline


@dataclass(frozen=True)
class HostMemory(Table):
    """Resident set at the end of each quiet step, in bytes; ``usable``: its RAM (0: unknown)."""

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
        """Unneeded bytes as a share of the reserved bytes."""
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

    share: float = knob(0.90, "Warn if tensors need at least this share of the memory at once.")
    severe: float = knob(
        0.97, "Report an error from this share on, but a note if only the cache reaches it."
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
    """Devices whose memory was profiled and capacity is told. ``marked``: the trace shows steps."""

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


MIB = 2**20


@dataclass(frozen=True)
class FragmentationRule(Rule):
    """Base of the rules about reserved memory that is not needed; no rule itself."""

    share: float = knob(0.25, "Report only if at least this share of the reserved is unneeded.")
    least_mib: float = knob(256.0, "Report only from this many MiB on, unless memory ran short.")
    share_if_pressed: float = knob(0.1, "Use this share if it retried or ran out of memory.")

    def fragmented(self, memory: DeviceMemory | Course) -> bool:
        """Whether much of the reserve was never needed; less will do if the allocator ran short."""
        if memory.retries or memory.ooms:
            return memory.unneeded_bytes > 0 and memory.unneeded_share >= self.share_if_pressed
        large = memory.unneeded_bytes >= int(self.least_mib * MIB)
        return large and memory.unneeded_share >= self.share


class ReservedMemoryNeverNeeded(FragmentationRule):
    """Reserved device memory was never needed, not even at the peak."""

    code = "MEM004"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    def detect(self, memory: DeviceMemory, machine: Machine) -> Iterator[Finding]:
        machine.nothing_seen_without_cuda("the CUDA allocator was not used")
        if self.fragmented(memory):
            yield replace(_unneeded(memory, ""), steps=len(memory.steps), basis=machine.bytes_basis)

    def in_snapshot(self, allocations: Allocations) -> Iterator[Finding]:
        for course in allocations.devices:
            if self.fragmented(course):
                found = _unneeded(course, f" on GPU {course.device}")
                yield replace(found, basis="measured", seen_on="snapshot")

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which lets segments grow "
            "instead of leaving holes. It helps if tensor sizes vary from step to step, does not "
            "reduce memory that is really in use, and is not available on all platforms. Measure "
            "the peak again.",
            config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        )


def _unneeded(memory: DeviceMemory | Course, where: str) -> Finding:
    return Finding(
        None,
        f"{amounts.size(memory.unneeded_bytes)} of {amounts.size(memory.reserved_at_peak)} "
        f"reserved{where} ({amounts.percent(memory.unneeded_share)}) were never needed, not even at "
        "the peak",
        lost_bytes=memory.unneeded_bytes,
        facts=memory.facts,
    )


@dataclass(frozen=True)
class BlockPinsSegment(FragmentationRule):
    """A small live block keeps a large free segment."""

    code = "MEM005"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    pinned_mib: float = knob(64.0, "Show only lines that keep at least this many MiB reserved.")

    def detect(
        self, memory: DeviceMemory, snapshot: Snapshot, machine: Machine
    ) -> Iterator[Finding]:
        machine.nothing_seen_without_cuda("the CUDA allocator was not used")
        if self.fragmented(memory) or snapshot.at_oom:
            yield from self._pins(snapshot, machine.bytes_basis)

    def in_snapshot(self, allocations: Allocations, snapshot: Snapshot) -> Iterator[Finding]:
        for course in allocations.devices:
            if self.fragmented(course):
                yield from self._pins(snapshot.on(course.device), "measured")

    def _pins(self, snapshot: Snapshot, basis: Basis) -> Iterator[Finding]:
        pins = [pin for pin in snapshot.pins()[:3] if pin.free_bytes >= self.pinned_mib * MIB]
        if not pins and snapshot.untold_bytes >= self.pinned_mib * MIB:
            raise NotLooked(
                "the blocks that keep the segments were allocated before the allocation history "
                "began"
            )
        for pin in pins:
            yield Finding(
                pin.site,
                f"{amounts.count(pin.blocks, 'live block')} ({amounts.size(pin.live_bytes)}) "
                f"allocated here keep{'s' * (pin.blocks == 1)} "
                f"{amounts.count(len(pin.segments), 'segment')} "
                f"reserved in which {amounts.size(pin.free_bytes)} are free",
                lost_bytes=pin.free_bytes,
                basis=basis,
                seen_on="snapshot",
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Allocate long-lived tensors before short-lived ones (once, before the loop), or copy what "
            "is kept to the host. expandable_segments:True avoids most such holes.",
            config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        )


@dataclass(frozen=True)
class AllocatorSettingWouldHelp(Rule):
    """Another allocator setting would need less memory for the same program."""

    code = "MEM009"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    share: float = knob(
        0.1, "Unless it prevents an error or retry, name a setting that saves at least this share."
    )
    least_mib: float = knob(
        256.0, "Unless it prevents an error or a retry, name a setting that saves this many MiB."
    )

    def detect(self, what_if: WhatIf, configs: Configs) -> Iterator[Finding]:
        before, least = (
            what_if.recorded,
            max(self.share * what_if.recorded.peak_reserved, self.least_mib * MIB),
        )
        if not before.ooms and not before.retries and what_if.may_save < least:
            return
        best = min(
            what_if.others,
            key=lambda each: (each.ooms, each.retries, each.peak_reserved),
            default=None,
        )
        if best is None:
            return
        saved = before.peak_reserved - best.peak_reserved
        avoided = _avoided(before.ooms - best.ooms, before.retries - best.retries)
        if not avoided and saved < least:
            return
        told = (
            avoided
            or f"reserve {amounts.size(best.peak_reserved)} instead of "
            f"{amounts.size(before.peak_reserved)}"
        )
        yield Finding(
            None,
            f"with {best.setting}, the same allocations {told}",
            lost_bytes=saved if saved > 0 else None,
            basis="estimated",
            seen_on="snapshot",
            severity=None if avoided else Severity.NOTE,
            facts=(*what_if.since, before.row, *(each.row for each in what_if.others)),
            remedy=_remedy(best.setting, allocator_home(configs)),
        )


def _remedy(setting: str, home: Home | None) -> Remedy:
    """To be written where one is set now (``home``)."""
    return Remedy(
        f"Set PYTORCH_CUDA_ALLOC_CONF={setting} before torch starts, and measure again: the "
        "replay only knows the recorded order of allocations.",
        (home.edit(setting, safe=True, reason=PLACES),) if home is not None else (),
        config={"PYTORCH_CUDA_ALLOC_CONF": setting},
    )


def _avoided(ooms: int, retries: int) -> str:
    if ooms > 0:
        return "do not run out of memory"
    return (
        f"avoid {retries} allocator retr{'ies' if retries > 1 else 'y'}"
        if retries > 0 and not ooms
        else ""
    )
