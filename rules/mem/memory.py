"""Memory step by step: the allocator's on the device, the resident set on the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from auditor import amounts
from auditor.evidence.recorded.steps import Step, Steps
from auditor.evidence.recorded.trend import Trend
from auditor.evidence.table import Evidence, Table


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
    """The CUDA allocator's counters in the quiet pass, or in the loud one if no quiet step
    completed.
    """

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
        """Bytes that the allocator held from the device at the end of the (last) step with that
        peak.
        """
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
        """Times that the allocator had to give cached blocks back to the device before it could
        serve a request.
        """
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
        """True if much of the reserved memory was never needed; less is enough where the allocator
        ran short.
        """
        if self.retries or self.ooms:
            return self.unneeded_bytes > 0 and self.unneeded_share >= share_if_pressed
        return self.unneeded_bytes >= least_bytes and self.unneeded_share >= share
