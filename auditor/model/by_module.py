"""The step by module, as a report holds it, and the data-sheet peaks of GPUs. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from auditor.model.sites import Site


@dataclass(frozen=True)
class ModuleUse:
    """A module with those inside it, which follow it at a greater ``depth``; of ``alike`` siblings
    one stands for all.

    ``forward`` and ``backward`` are shares of the step, ``own`` is the part of both that is in no
    module inside. ``saved_bytes`` are kept from forward to backward, ``flops`` those of a step.
    """

    path: str
    depth: int
    kind: str
    alike: int
    site: Site | None
    parameters: int
    forward: float
    backward: float
    own: float
    saved_bytes: int | None
    flops: float


@dataclass(frozen=True)
class ByModule:
    """The tree, in the order of its lines. Shares are of the time of the diagnostic pass, under its
    probes; rates of the timing pass, in one process, and None where they are not known. ``peak`` is
    the share of the operations that the GPU's data sheet gives.
    """

    modules: tuple[ModuleUse, ...]
    flops: float = 0.0
    flops_per_s: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    peak: float | None = None


def _tera(
    float32: float, tf32: float | None, half: float, bfloat16: float | None
) -> Mapping[str, float]:
    peaks = {"float32": float32, "tf32": tf32, "float16": half, "bfloat16": bfloat16}
    return {kind: peak * 1e12 for kind, peak in peaks.items() if peak is not None}


PEAKS = {
    r"Tesla V100-SXM.*": _tera(15.7, None, 125, None),
    r"(Tesla|NVIDIA) T4": _tera(8.1, None, 65, None),
    r"(NVIDIA )?A100.*": _tera(19.5, 156, 312, 312),
    r"NVIDIA A10": _tera(31.2, 62.5, 125, 125),
    r"NVIDIA L4": _tera(30.3, 60, 121, 121),
    r"NVIDIA L40S": _tera(91.6, 183, 362, 362),
    r"NVIDIA H100 PCIe": _tera(51, 378, 756, 756),
    r"NVIDIA (H100 80GB HBM3|H200)": _tera(67, 494, 989, 989),
    r"NVIDIA B200": _tera(75, 1125, 2250, 2250),
    r"NVIDIA GeForce RTX 3090": _tera(35.6, 35.6, 71, 71),
    r"NVIDIA GeForce RTX 4090": _tera(82.6, 82.6, 165.2, 165.2),
}
"""Dense operations per second by the driver's name, with float32 sums, as NVIDIA's data sheets (of
GeForce: the architecture's white papers) give them; half of what these say with sparsity.
"""


def peaks_of(name: str) -> Mapping[str, float]:
    """Peak by type of a GPU; empty for one that is not in the table."""
    return next((peaks for model, peaks in PEAKS.items() if re.fullmatch(model, name)), {})
