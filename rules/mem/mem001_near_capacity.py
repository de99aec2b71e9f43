"""MEM001: the step needs nearly all of the device's memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .capacity import DevicePeak, TraceMemory


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
