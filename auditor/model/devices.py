"""What a step ran on (:class:`DeviceInfo`), and what kind of thing is judged (:data:`Input`)."""

from dataclasses import dataclass, replace
from typing import Literal

Input = Literal["run", "trace", "snapshot", "checkpoint"]
"""What is judged: the recording of a run or rehearsal, or a file that stands alone."""

Simulator = Literal["", "shadow", "null"]
"""How the device is simulated: not at all; by our shadow instead of torch's own code (a rehearsal);
or a null device below torch's own code, which computes nothing.
"""

KINDS = frozenset({"cpu", "cuda", "xpu", "mps"})
"""Device types of torch that a recording may name. ROCm is ``cuda`` to torch."""


@dataclass(frozen=True)
class DeviceInfo:
    """The device that the step could use: torch's type, how it is simulated, and its name."""

    kind: str = "cpu"
    simulator: Simulator = ""
    name: str = ""
    """``NVIDIA H200``; empty if that was not recorded."""

    @property
    def simulated(self) -> bool:
        """True if no such device took part: counts and bytes are those of one, times are not."""
        return bool(self.simulator)

    @property
    def accelerator(self) -> bool:
        """True if the program took its path for a device other than the host, real or simulated."""
        return self.kind != "cpu"

    @property
    def timed(self) -> bool:
        """True if an accelerator took part whose times were measured."""
        return self.accelerator and not self.simulated

    @property
    def native(self) -> bool:
        """True if torch's own code ran for the accelerator: its allocator, events and profiler."""
        return self.accelerator and self.simulator != "shadow"

    @property
    def shadow(self) -> bool:
        """True in a rehearsal on our shadow device."""
        return self.simulator == "shadow"

    @property
    def null(self) -> bool:
        """True on a null device: nothing is computed, so that values are zeros and say nothing."""
        return self.simulator == "null"

    @property
    def word(self) -> str:
        """What the manifest and ``run.device`` of a report say: ``cpu``, ``cuda``, ``rehearse`` or
        ``null``.
        """
        return {"": self.kind, "shadow": "rehearse", "null": "null"}[self.simulator]

    @property
    def seen_on(self) -> Literal["cpu", "cuda", "rehearsal", "null"]:
        """Where a finding was seen that a probe made here."""
        if self.null:
            return "null"
        if self.shadow:
            return "rehearsal"
        return "cuda" if self.accelerator else "cpu"


CPU, CUDA = DeviceInfo(), DeviceInfo("cuda")
SHADOW, NULL = DeviceInfo("cuda", "shadow"), DeviceInfo("cuda", "null")

_WORDS = {"rehearse": SHADOW, "rehearsal": SHADOW, "null": NULL}
_INPUTS: dict[object, Input] = {
    "trace": "trace",
    "snapshot": "snapshot",
    "checkpoint": "checkpoint",
}


def device_named(word: object, name: str = "") -> DeviceInfo:
    """The device of a manifest, a report or a finding by its word; the host for an unknown word."""
    known = _WORDS.get(word) if isinstance(word, str) else None
    if known is None:
        known = DeviceInfo(word) if isinstance(word, str) and word in KINDS else CPU
    return replace(known, name=name)


def input_named(word: object) -> Input:
    """What is judged, by the same word."""
    return _INPUTS.get(word, "run") if isinstance(word, str) else "run"
