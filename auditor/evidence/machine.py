"""What the step ran on: the device it could use and the processors of the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from auditor.evidence.table import Table
from auditor.model import Basis
from auditor.recording import Recording
from auditor.rule import NotLooked

Device = Literal["cpu", "cuda", "rehearsal"]
"""``rehearsal``: the GPU path of the program, run on a shadow device; it has counts and bytes, no times."""


@dataclass(frozen=True)
class Machine(Table):
    """Device of the audited step, and how many processors it may use (0: not recorded).

    ``capability`` is the major compute capability of NVIDIA's GPU, real or rehearsed (0: not recorded, or another maker's).
    """

    parts: ClassVar[tuple[str, ...]] = ()

    device: Device = "cpu"
    cpus: int = 0
    capability: int = 0

    @classmethod
    def build(cls, recording: Recording) -> Machine:
        """From the manifest alone."""
        environment = recording.manifest.get("environment") or {}
        cpus = str(environment.get("cpu_count", ""))
        major = str(environment.get("capability", "")).partition(".")[0]
        return cls(device_of(recording), int(cpus) if cpus.isdecimal() else 0, int(major) if major.isdecimal() else 0)

    @property
    def cuda(self) -> bool:
        """True if the step could use a CUDA device: only then do its times say anything about one."""
        return self.device == "cuda"

    @property
    def gpu_path(self) -> bool:
        """True if the program ran its path for a CUDA device, on a real one or in a rehearsal."""
        return self.device != "cpu"

    @property
    def bytes_basis(self) -> Basis:
        """How bytes on the device were come by: in a rehearsal they are those of a simulated allocator."""
        return "estimated" if self.device == "rehearsal" else "measured"

    def nothing_seen_without_cuda(self, why: str) -> None:
        """Having seen nothing means *clean* only where there was a CUDA device: raises :class:`NotLooked` elsewhere."""
        if not self.gpu_path:
            raise NotLooked(f"no CUDA device in this run: {why}")


def device_of(recording: Recording) -> Device:
    """The device of a recording, from its manifest."""
    names: dict[object, Device] = {"cuda": "cuda", "rehearse": "rehearsal"}
    return names.get(recording.manifest.get("device"), "cpu")
