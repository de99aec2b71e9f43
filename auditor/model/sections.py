"""Sections of a report as data: torch.compile, verification, modules and times. Standard library only."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from auditor.model.sites import Site


@dataclass(frozen=True)
class CompiledPart:
    """A function or module that the program gave to ``torch.compile``, with the options that it
    named. It ran in ``steps`` of the ``watched`` ones.
    """

    site: Site
    what: str
    options: str
    steps: int
    watched: int


@dataclass(frozen=True)
class Gain:
    """How many us a step is faster compiled than held eager, and between what that lies; negative
    where it is slower. ``eager_us`` is the median step without the compiler.
    """

    us: float
    low: float
    high: float
    eager_us: float


@dataclass(frozen=True)
class Compilation:
    """Counts and times of the passes that no instrument disturbs.

    ``compiled`` frames took ``us`` together; ``again`` of them since a guard had failed. ``breaks``
    are lines at which a graph ends, ``during`` the timed steps in which something was compiled.
    """

    compiled: int
    us: float
    again: int
    breaks: int
    during: int
    parts: tuple[CompiledPart, ...] = ()
    gain: Gain | None = None

    @property
    def paid_after(self) -> int | None:
        """Steps after which compiling has paid; None if it gains nothing that is proven."""
        if self.gain is None or not 0.0 < self.gain.low <= self.gain.us:
            return None
        steps = self.us / self.gain.us
        return max(1, round(steps)) if math.isfinite(steps) else None


# -- outcomes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RanOut:
    """Memory ran out, in bytes; None if nothing tells it.

    ``limit`` is what the device has, or what the run was given of it. ``requested`` is what a tensor
    needed, ``segment`` what the allocator then asked of the device, of which ``free`` were left:
    ``short`` were missing. ``fits`` are the allocator settings under which a replay of the same
    allocations fits, of ``tried`` ones.
    """

    limit: int | None
    in_use: int
    reserved: int
    requested: int | None
    segment: int | None
    free: int | None
    short: int | None
    fits: tuple[str, ...] = ()
    tried: int = 0


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that was scanned: whether training can go on from it, and what it holds.
    ``latest`` is the last good one of all, ``verdict`` says in words why another is not: ``damaged``,
    ``refused`` by torch or ``not looked at``.
    """

    name: str
    good: bool
    said: str
    latest: bool = False
    verdict: str = ""


# -- communication ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankShare:
    """One rank: bytes of its memory by purpose (None: unknown), what it gives and gets a step."""

    rank: int
    peak_bytes: int | None
    parameter_bytes: int | None
    gradient_bytes: int | None
    optimizer_bytes: int | None
    collectives: float
    bytes_in: float
    bytes_out: float

    @property
    def other_bytes(self) -> int | None:
        """At the peak: activations, buckets, workspaces; None if a part is not known."""
        known = (self.parameter_bytes, self.gradient_bytes, self.optimizer_bytes)
        if self.peak_bytes is None or None in known:
            return None
        return max(0, self.peak_bytes - sum(each for each in known if each is not None))


@dataclass(frozen=True)
class Exchange:
    """Collectives of one kind that one line issues in a group, on each of ``of_ranks`` alike:
    ``per_step`` of them, for which a rank gives ``bytes_in`` and gets ``bytes_out``.

    The program waits for them at ``waited``, ``between`` operators later; None if torch waits, or
    no wait was seen.
    """

    site: Site
    what: str
    group: str
    ranks: int
    dtype: str
    per_step: float
    bytes_in: float
    bytes_out: float
    waited: Site | None
    between: int | None
    of_ranks: tuple[int, ...]


@dataclass(frozen=True)
class Communication:
    """Of the ranks that were recorded, of ``world_size``, in the ``steps`` that were watched.
    ``played``: the other ranks did not run.
    """

    world_size: int
    played: bool
    steps: int
    ranks: tuple[RankShare, ...]
    exchanges: tuple[Exchange, ...]
    """Those with the most bytes first."""


# -- verification ----------------------------------------------------------------------------------

Status = Literal["better", "same", "worse", "broken", "inconclusive"]
"""``same``: enough pairs of runs show no difference; ``inconclusive``: too few to tell."""


@dataclass(frozen=True)
class Verified:
    """What a re-run with the patch measured (``audit verify``). Times in us, memory in bytes.

    ``ratio`` is the step time after to before (below 1: faster), between ``ratio_low`` and
    ``ratio_high`` from ``pairs`` of runs; None if it was not timed (a remedy for a GPU, checked
    without one) or too few pairs fitted the budget. ``same_result`` is None if the target itself
    does not repeat its losses. ``note`` says in a sentence what decided.
    """

    status: Status
    step_us_before: float | None
    step_us_after: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    peak_bytes_before: int | None = None
    peak_bytes_after: int | None = None
    same_result: bool | None = None
    pairs: int = 0
    syncs_before: float | None = None
    syncs_after: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Verification:
    """What ``audit verify`` did: all good patches ``together``, and how steady the target and the
    machine are.

    ``noise`` is the interval of the ratio between runs of the same unpatched code (low, high); None
    from too few pairs. ``repeatable`` is True if two unpatched runs with the same seeds gave the
    same losses, bit for bit.
    """

    together: Verified | None
    codes: tuple[str, ...]
    noise: tuple[float, float] | None
    repeatable: bool
    runs: int
    steps: int
    seconds: float
    notes: tuple[str, ...] = ()


# -- by module -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModuleUse:
    """A module with those ``inside`` it; of ``alike`` siblings one stands for all.

    ``forward`` and ``backward`` are shares of the step. ``saved_bytes`` are kept from forward to backward, ``flops`` those of a step.
    """

    path: str
    kind: str
    alike: int
    site: Site | None
    forward: float
    backward: float
    saved_bytes: int
    flops: float
    inside: tuple[ModuleUse, ...] = ()

    @property
    def own(self) -> float:
        """The share that is in no module inside."""
        inside = sum(use.forward + use.backward for use in self.inside)
        return self.forward + self.backward - inside


@dataclass(frozen=True)
class ByModule:
    """The outermost modules, the costliest first. Shares are of the time of the diagnostic pass, under its
    probes, where it is ``timed``, else of the operations; rates of the timing pass, in one process,
    and None if they are not known. ``peak`` is the share of what the GPU's data sheet gives.
    """

    modules: tuple[ModuleUse, ...]
    flops: float = 0.0
    flops_per_s: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    peak: float | None = None
    timed: bool = True


TYPES = ("float32", "tf32", "float16", "bfloat16")
PEAKS = {
    r"Tesla V100-SXM.*": (15.7, None, 125, None),
    r"(Tesla|NVIDIA) T4": (8.1, None, 65, None),
    r"(NVIDIA )?A100.*": (19.5, 156, 312, 312),
    r"NVIDIA A10": (31.2, 62.5, 125, 125),
    r"NVIDIA L4": (30.3, 60, 121, 121),
    r"NVIDIA L40S": (91.6, 183, 362, 362),
    r"NVIDIA H100 PCIe": (51, 378, 756, 756),
    r"NVIDIA (H100 80GB HBM3|H200)": (67, 494, 989, 989),
    r"NVIDIA B200": (75, 1125, 2250, 2250),
    r"NVIDIA GeForce RTX 3090": (35.6, 35.6, 71, 71),
    r"NVIDIA GeForce RTX 4090": (82.6, 82.6, 165.2, 165.2),
}
"""Dense TFLOP per second in these types by the driver's name, with float32 sums, as NVIDIA's data sheets (of
GeForce: the architecture's white papers) give them; half of what these say with sparsity.
"""


def peaks_of(name: str) -> Mapping[str, float]:
    """Peak by type of a GPU, in operations per second; empty for one that is not in the table."""
    peaks = next((peaks for model, peaks in PEAKS.items() if re.fullmatch(model, name)), ())
    return {kind: peak * 1e12 for kind, peak in zip(TYPES, peaks, strict=False) if peak}


# -- device time -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A part of a step on the device. Parts of one device add up to the step."""

    name: str
    us: float
    share: float


@dataclass(frozen=True)
class CopyUse:
    """Copies of one kind, such as ``HtoD (Pageable -> Device)``: number, time on the device and
    bytes of each step.

    ``bytes`` is None if the trace does not say. Time that other work hides is in it.
    """

    kind: str
    per_step: float
    us: float
    bytes: float | None

    @property
    def gbs(self) -> float | None:
        """Rate in GB/s (1e9 bytes); None if it is not known."""
        return self.bytes / self.us / 1e3 if self.bytes and self.us else None


@dataclass(frozen=True)
class KernelUse:
    """A costly kernel: calls and time of each step, share of the step (concurrent runs add up)."""

    name: str
    calls: float
    us: float
    share: float


@dataclass(frozen=True)
class QueueUse:
    """The launch queue: kernels that waited in it when another was launched (the usual number, and
    the most), and the share of kernels that found it empty.
    """

    median: int
    most: int
    empty: float


@dataclass(frozen=True)
class DeviceTime:
    """The device with the most work in a trace. Times are us of each step; of the time from its
    first work to its last where the trace marks no steps (``steps`` is 0 then).

    ``busy`` is the share (0 to 1) in which any work ran; ``communication_us`` the time of
    collectives, hidden or not. ``rank`` is whose trace it is, where the trace says so.
    """

    device: str
    steps: int
    step_us: float
    busy: float
    parts: tuple[Part, ...]
    communication_us: float
    copies: tuple[CopyUse, ...]
    queue: QueueUse | None
    kernels: tuple[KernelUse, ...]
    loader_us: float | None = None
    """Time in which the loop waited for its loader; None if the trace shows none."""
    held_us: float = 0.0
    """Time in which the host was held until the device had got there."""
    peak_bytes: int | None = None
    """Peak of torch's allocator; None if memory was not recorded."""
    rank: int | None = None

    def share_of(self, name: str) -> float:
        """Share of the part of this name; 0 if there is no such part."""
        return next((part.share for part in self.parts if part.name == name), 0.0)


COMPUTING, EXPOSED, COPYING, IDLE = (
    "computing",
    "communication that nothing hides",
    "copies that nothing hides",
    "idle",
)
"""Names of parts, in the order in which they are told."""
