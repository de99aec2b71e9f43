"""AMP001 to 3: precision of matrix products."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import kernel_timeline
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob

if TYPE_CHECKING:
    from auditor.timeline import Timeline


HALF, TF32, FP32 = "16-bit", "tf32", "fp32"
"""Words of :mod:`auditor.timeline.totals`."""

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
    from auditor.timeline.totals import products as products_of

    products = products_of(line, use)
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
    from auditor.timeline.totals import matmul_ns

    return tuple((name, ns / 1e3) for name, ns in matmul_ns(line, line.devices[0]).items())


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


TENSOR_CORES, AMPERE = 7, 8
"""Compute capabilities: Volta has fp16 tensor cores, Ampere bf16 and TF32."""


@dataclass(frozen=True)
class NoMixedPrecision(Rule):
    """Matrix products and convolutions run in fp32 although the device has 16-bit tensor cores."""

    code = "AMP001"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        'Run forward and loss under torch.autocast("cuda", dtype=torch.bfloat16), and compare the '
        "loss curves."
    )

    share: float = knob(0.1, "Report if fp32 and TF32 products take this share of kernel time.")
    of_step: float = knob(
        0.05, "Report a note if these products take less than this share of the steps' time."
    )
    half: float = knob(
        0.01, "Mixed precision is in use if 16-bit products take this share of kernel time."
    )

    def detect(self, precision: Precision) -> Iterator[Finding]:
        slow = precision.share(FP32, TF32)
        able = precision.amd or precision.capability >= TENSOR_CORES
        if not able or slow < self.share or precision.share(HALF, "8-bit") >= self.half:
            return
        first = not precision.amd and precision.capability < AMPERE
        or_tf32 = " or TF32" if precision.share(TF32) > 0 else ""
        loud = first and precision.marked and precision.step_share(FP32) >= self.of_step
        yield Finding(
            None,
            f"{amounts.percent(slow)} of the kernel time is matrix products and convolutions in "
            f"fp32{or_tf32}, none in 16 bits: "
            f"{precision.device or 'the device'} has tensor cores for them",
            steps=precision.steps if precision.marked else 0,
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=precision.facts,
            remedy=Remedy(BEFORE_AMPERE) if first else None,
        )


BEFORE_AMPERE = (
    'Run forward and loss under torch.autocast("cuda", dtype=torch.float16) with '
    "torch.amp.GradScaler (this device has no bfloat16 tensor cores), and compare the loss curves."
)

TF32_SINCE = 8
"""Compute capability from which NVIDIA's devices have TF32."""

HIGH = 'torch.set_float32_matmul_precision("high")'


@dataclass(frozen=True)
class Tf32Off(Rule):
    """fp32 matrix products run without TF32 on a device that has it."""

    code = "AMP002"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.1, "Report if fp32 matrix products take this share of kernel time.")
    of_step: float = knob(
        0.05, "Report a note if fp32 products take less than this share of the steps' time."
    )

    def detect(self, precision: Precision, source: Source) -> Iterator[Finding]:
        slow = precision.matmul_share(FP32)
        if (
            precision.amd
            or precision.capability < TF32_SINCE
            or slow < self.share
            or precision.matmul_share(TF32) > 0
        ):
            return
        loud = precision.marked and slow * precision.busy >= self.of_step
        yield Finding(
            None,
            f"{amounts.percent(slow)} of the kernel time is matrix products in full fp32; "
            f"{precision.device or 'the device'} has TF32, but no product uses it",
            steps=precision.steps if precision.marked else 0,
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=precision.facts,
            remedy=Remedy(
                f"Call {HIGH} once at the start, or use bf16 autocast.", tuple(_tf32_on(source))
            ),
        )


def _tf32_on(source: Source) -> Iterator[Edit]:
    """Where it is switched off, or in the file that trains."""
    off, trains = source.only_flag("matmul.allow_tf32", value=False), source.only_call("backward")
    reason = "matrix products keep 10 bits of their inputs' mantissa instead of 23"
    if off is not None:
        yield Edit(off, "set_constant", keyword="allow_tf32", value="True", reason=reason)
    elif trains is not None:
        yield Edit(trains, "insert_after_imports", value=HIGH, reason=reason)


@dataclass(frozen=True)
class AwkwardProductSizes(Rule):
    """16-bit matrix products have sizes that are not multiples of 8."""

    code = "AMP003"
    severity = Severity.NOTE
    since = "0.1"
    advice = (
        "Pad the size (vocabulary, classes, sequence) to a multiple of 8, better 64, and "
        "mask the padding."
    )

    share: float = knob(0.1, "Report if such products take this share of kernel time.")

    def detect(self, precision: Precision) -> Iterator[Finding]:
        if not precision.shapes:
            raise NotLooked("the trace holds no shapes (record it with record_shapes=True)")
        us = sum(time for _, time in precision.awkward)
        if us < self.share * precision.kernel_us:
            return
        sizes = precision.awkward
        yield Finding(
            None,
            "16-bit products whose sizes are not multiples of 8 take "
            f"{amounts.percent(us / precision.kernel_us)} of the kernel time, "
            f"most of it with k x n = {sizes[0][0]}",
            steps=precision.steps if precision.marked else 0,
            seen_on="trace",
            facts=tuple(
                (f"k x n = {size}", f"{amounts.percent(time / precision.kernel_us)} of kernel time")
                for size, time in sizes[:5]
            ),
        )
