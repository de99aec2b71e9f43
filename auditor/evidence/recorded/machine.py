"""What the step ran on: the device it could use and the processors of the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from auditor.evidence.table import Evidence, Table
from auditor.model import Basis
from auditor.model.devices import DeviceInfo, device_named
from auditor.rule import NotLooked

Device = Literal["cpu", "cuda", "rehearsal", "null"]
"""``rehearsal``: the GPU path of the program, run on a shadow device; ``null``: torch's own CUDA
code on a device that computes nothing. Both have counts and bytes, no times.
"""


@dataclass(frozen=True)
class Machine(Table):
    """Device of the audited step, how many processors it may use (0: not recorded), and of how many
    ranks it was one (0: not of several).

    ``capability`` is the major compute capability of NVIDIA's GPU, real or rehearsed (0: not
    recorded, or another maker's).
    """

    device: Device = "cpu"
    cpus: int = 0
    capability: int = 0
    ranks: int = 0
    operator_ns: int = 0
    """What a call of an operator takes on the host besides its arithmetic; 0: not recorded."""

    @classmethod
    def build(cls, evidence: Evidence) -> Machine:
        """From the manifest alone."""
        environment = evidence.recording.manifest.get("environment") or {}

        def number(name: str) -> int:
            text = str(environment.get(name, "")).partition(".")[0]
            return int(text) if text.isdecimal() else 0

        return cls(
            device_of(evidence),
            number("cpu_count"),
            number("capability"),
            int(evidence.recording.manifest.get("world_size") or 0),
            number("operator_ns"),
        )

    @property
    def on(self) -> DeviceInfo:
        """The device, with what may be asked of it."""
        return device_named(self.device)

    @property
    def simulated(self) -> bool:
        """True in a rehearsal and on a null device: no such device took part."""
        return self.on.simulated

    @property
    def cuda(self) -> bool:
        """True if the step could use a CUDA device."""
        return self.on.timed

    @property
    def gpu_path(self) -> bool:
        """True if the program ran its path for a CUDA device, on a real one or in a rehearsal."""
        return self.on.accelerator

    @property
    def bytes_basis(self) -> Basis:
        """How bytes on the device were come by: in a rehearsal by a simulated allocator."""
        return "estimated" if self.on.simulated else "measured"

    def nothing_seen_without_cuda(self, why: str) -> None:
        """Raises :class:`NotLooked` without a CUDA device, if silence is not *clean*."""
        if not self.gpu_path:
            raise NotLooked(f"no CUDA device in this run: {why}")


def device_of(evidence: Evidence) -> Device:
    """Where findings of a recording's probes were seen."""
    return evidence.recording.device.seen_on
