"""The peak as a function of the batch size: lines through rehearsals, the largest batch to fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from auditor.model.gpus import Gpu

Fits = Literal["yes", "tight", "no"]

FINE, COARSE = 16, 8
"""From the first on a batch size is given as a multiple of the second."""

MOST = 1 << 24
"""No larger batch is looked for."""


@dataclass(frozen=True)
class Point:
    """One rehearsed batch size: the peak of each phase, of all, and what was reserved; bytes."""

    batch: int
    phases: Mapping[str, int]
    allocated: int
    reserved: int


class MemoryModel:
    """A line for each phase through the two rehearsed points next to a batch size; the peak is the
    highest of them. What is reserved beyond is taken to be the same share as at the larger of these
    points.
    """

    def __init__(self, points: Sequence[Point]) -> None:
        by_batch = {point.batch: point for point in points}
        self.points = tuple(by_batch[batch] for batch in sorted(by_batch))

    def allocated(self, batch: int) -> float:
        """Bytes that tensors hold at the peak."""
        first, second = self._around(batch)
        beyond = (batch - first.batch) / ((second.batch - first.batch) or 1)
        peaks = []
        for phase in {**first.phases, **second.phases}:
            low, high = first.phases.get(phase, 0), second.phases.get(phase, 0)
            peaks.append(low + (high - low) * beyond)
        return max(peaks)

    def reserved(self, batch: int) -> float:
        """Bytes that the allocator holds from the device."""
        nearest = self._around(batch)[1]
        share = nearest.reserved / nearest.allocated if nearest.allocated else 1.0
        return self.allocated(batch) * max(1.0, share)

    @property
    def grows(self) -> bool:
        """Whether a larger batch takes more memory in any phase, as far as was rehearsed."""
        first, last = self.points[0].phases, self.points[-1].phases
        return any(last[phase] > first.get(phase, 0) for phase in last)

    def largest(self, usable: int) -> int | None:
        """The largest batch predicted to need at most these bytes; None if a batch of 1 needs more."""
        low, high = 0, MOST
        while low < high:
            middle = (low + high + 1) // 2
            if self.reserved(middle) <= usable:
                low = middle
            else:
                high = middle - 1
        return rounded(low) or None

    def _around(self, batch: int) -> tuple[Point, Point]:
        points = self.points
        if len(points) == 1:
            return points[0], points[0]
        above = next((n for n, each in enumerate(points) if each.batch >= batch), len(points) - 1)
        second = max(1, above)
        return points[second - 1], points[second]


def rounded(batch: int) -> int:
    """A batch size as people choose it, not above this one."""
    return batch if batch < FINE else batch - batch % COARSE


def usable_bytes(gpu: Gpu) -> int:
    """What torch's allocator has: the card's memory without the driver's context and kernels."""
    return gpu.memory_bytes - (gpu.context_mib << 20)


def fits(gpu: Gpu, allocated: float, reserved: float) -> Fits:
    """``tight``: only if torch gives back what it has cached, which costs waits and may fail."""
    usable = usable_bytes(gpu)
    if reserved <= usable:
        return "yes"
    return "tight" if allocated <= usable else "no"
