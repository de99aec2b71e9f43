"""The step by module, as a report holds it, and the data-sheet peaks of GPUs. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from auditor.model.sites import Site


@dataclass(frozen=True)
class ModuleUse:
    """A module with those ``inside`` it; of ``alike`` siblings one stands for all.

    ``forward`` and ``backward`` are shares of the step, ``own`` is the part of both that is in no
    module inside. ``saved_bytes`` are kept from forward to backward, ``flops`` those of a step.
    """

    path: str
    kind: str
    alike: int
    site: Site | None
    parameters: int
    forward: float
    backward: float
    own: float
    saved_bytes: int | None
    flops: float
    inside: tuple[ModuleUse, ...] = ()


@dataclass(frozen=True)
class ByModule:
    """The outermost modules, the costliest first. Shares are of the time of the diagnostic pass, under its
    probes, where it is ``timed``, else of the operations; rates of the timing pass, in one process,
    and None where they are not known. ``peak`` is the share of what the GPU's data sheet gives.
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
