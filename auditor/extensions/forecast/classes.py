"""Time of everything but matrix products: five numbers a class and vendor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CORNER = 3.0
_IN_L2 = 0.3
"""Share of the L2 below which what is read was there already."""


@dataclass(frozen=True)
class ClassNumbers:
    """The five numbers."""

    floor_us: float
    """A kernel that does next to nothing."""
    compute: float
    """Share of the peak FLOP/s."""
    memory: float
    """Share of the bandwidth."""
    start: float
    """FLOPs, in units of 100,000 a processor, that starting and ending costs as much as."""
    l2_gain: float
    """How much faster bytes come where all of them fit into the L2."""


@dataclass(frozen=True)
class Work:
    """Calls of one class as columns, with what their GPU's sheet says."""

    flops: Floats
    bytes: Floats
    kernels: Floats
    peak: Floats
    """FLOP/us"""
    bandwidth: Floats
    """Bytes/us"""
    l2_bytes: Floats
    processors: Floats


def class_us(numbers: ClassNumbers, work: Work) -> Floats:
    """Times in us, the data sheet's bound left aside."""
    gain = np.where(work.bytes < work.l2_bytes * _IN_L2, max(numbers.l2_gain, 1.0), 1.0)
    memory = work.bytes / (work.bandwidth * numbers.memory * gain)
    started = np.where(work.flops > 0, numbers.start * 1e5 * work.processors, 0.0)
    compute = (work.flops + started) / (work.peak * numbers.compute)
    soft: Floats = (compute**_CORNER + memory**_CORNER) ** (1 / _CORNER)
    return numbers.floor_us * np.maximum(work.kernels, 1.0) + soft
