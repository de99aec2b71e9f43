"""Arithmetic of a trace: which matrix products ran in which precision, on a device of which
generation, and what casting cost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import kernel_timeline

if TYPE_CHECKING:
    from auditor.timeline import Timeline

HALF, TF32, FP32 = "16-bit", "tf32", "fp32"
"""Words of :mod:`auditor.timeline.precision`."""

_GENERATIONS = (
    (re.compile(r"sm100|blackwell"), 10),
    (re.compile(r"sm90|hopper|nvjet|wgmma"), 9),
    (re.compile(r"ampere|sm8\d|cutlass_8\d"), 8),
    (re.compile(r"volta|turing|sm7\d|cutlass_7\d"), 7),
)
"""Kernels of a generation run on that generation or a later one: a name gives the least that the
device can be.
"""


@dataclass(frozen=True)
class Precision(Table):
    """Products, convolutions and attention by arithmetic on the device with the most work. Times
    are sums in us.

    ``capability`` is the major compute capability (0: not known), ``amd`` tells AMD's devices,
    whose numbers mean another thing. ``matmul_us`` are the products that a matrix product's
    operator launched (not a convolution's), by arithmetic.
    """

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    device: str = ""
    capability: int = 0
    amd: bool = False
    steps: int = 1
    marked: bool = False
    busy: float = 0.0
    """Part of the steps' time in which the device worked."""
    kernel_us: float = 0.0
    products_us: tuple[tuple[str, float], ...] = ()
    matmul_us: tuple[tuple[str, float], ...] = ()
    top: tuple[tuple[str, float], ...] = ()
    """The fp32 kernels with the most time."""
    casts: int = 0
    cast_us: float = 0.0
    shapes: bool = False
    """Whether the trace holds shapes of products."""
    awkward: tuple[tuple[str, float], ...] = ()
    """``k x n`` of 16-bit products that are no multiples of 8, and their time."""

    @classmethod
    def build(cls, evidence: Evidence) -> Precision:
        """From the trace. Raises :class:`NotLooked` where it shows no kernel."""
        return _table(kernel_timeline(evidence))

    def share(self, *arithmetics: str) -> float:
        """Part of all kernel time in products of these arithmetics."""
        return self._of(self.products_us, arithmetics) / self.kernel_us if self.kernel_us else 0.0

    def matmul_share(self, *arithmetics: str) -> float:
        """Part of all kernel time in matrix products (no convolutions) of these arithmetics."""
        return self._of(self.matmul_us, arithmetics) / self.kernel_us if self.kernel_us else 0.0

    def step_share(self, *arithmetics: str) -> float:
        """Their part of the steps' time: what a faster arithmetic could take from."""
        return self.share(*arithmetics) * self.busy

    @staticmethod
    def _of(times: tuple[tuple[str, float], ...], arithmetics: tuple[str, ...]) -> float:
        return sum(us for name, us in times if name in arithmetics)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        products = tuple(
            (f"{name} products", f"{amounts.percent(us / self.kernel_us)} of kernel time")
            for name, us in self.products_us
        )
        device = (("device", f"{self.device or 'not named'}{self._generation}"),)
        return (
            *device,
            *products,
            *((f"{amounts.percent(us / self.kernel_us)}", name[:90]) for name, us in self.top),
        )

    @property
    def _generation(self) -> str:
        return (
            f", compute capability {self.capability}.x" if self.capability and not self.amd else ""
        )


def _table(line: Timeline) -> Precision:
    use = line.devices[0]
    products = line.products[use.device]
    slow = next((one for one in products if one.arithmetic == FP32), None)
    awkward = line.awkward_products
    return Precision(
        device=use.name,
        capability=_capability(line),
        amd=_amd(line),
        steps=line.steps.count,
        marked=line.steps.marked,
        busy=1 - line.idle.total / max(1, line.idle.windows.length) if line.idle else 0.0,
        kernel_us=use.kernel_ns / 1e3,
        products_us=tuple((one.arithmetic, one.ns / 1e3) for one in products),
        matmul_us=_matmuls(line),
        top=tuple((name, ns / 1e3) for name, ns in slow.top[:3]) if slow else (),
        casts=len(line.casts.rows),
        cast_us=line.casts.ns / 1e3,
        shapes=awkward.looked,
        awkward=tuple((size, ns / 1e3) for size, ns in awkward.sizes),
    )


def _matmuls(line: Timeline) -> tuple[tuple[str, float], ...]:
    from auditor.timeline.precision import matmul_ns

    return tuple(
        (name, ns / 1e3)
        for name, ns in matmul_ns(
            line.trace, line.devices[0], line.tree, line.launching_operator
        ).items()
    )


def _amd(line: Timeline) -> bool:
    names = [device.name for device in line.trace.info.devices]
    calls = (total.name for total in line.runtime_calls)
    return any("AMD" in name or "Instinct" in name for name in names) or any(
        name.startswith("hip") for name in calls
    )


def _capability(line: Timeline) -> int:
    known = {device.index: device.capability[0] for device in line.trace.info.devices}
    said = known.get(line.devices[0].device, 0)
    if said:
        return said
    kernels = [total.name.lower() for total in line.kernels]
    return next(
        (major for pattern, major in _GENERATIONS if any(pattern.search(name) for name in kernels)),
        0,
    )
