"""AMP001: matrix products run in fp32 on a device with 16-bit tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .precision import FP32, HALF, TF32, Precision

TENSOR_CORES, AMPERE = 7, 8
"""Compute capabilities: Volta has fp16 tensor cores, Ampere bf16 and TF32."""


@dataclass(frozen=True)
class NoMixedPrecision(Rule):
    """Matrix products and convolutions run in fp32 although the device has 16-bit tensor cores."""

    code = "AMP001"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.1, "Share of kernel time in fp32 and TF32 products from which it is reported."
    )
    of_step: float = knob(
        0.05, "Share of the steps' time in these products below which it is a note."
    )
    half: float = knob(
        0.01, "Share of kernel time in 16-bit products from which mixed precision is in use."
    )

    def detect(self, precision: Precision) -> Iterator[Finding]:
        slow = precision.share(FP32, TF32)
        able = precision.amd or precision.capability >= TENSOR_CORES
        if not able or slow < self.share or precision.share(HALF, "8-bit") >= self.half:
            return
        first = not precision.amd and precision.capability < AMPERE
        loud = first and precision.marked and precision.step_share(FP32) >= self.of_step
        yield Finding(
            None,
            f"{amounts.percent(slow)} of the kernel time is matrix products and convolutions in "
            f"fp32{_or_tf32(precision)}, none in 16 bits: "
            f"{precision.device or 'the device'} has tensor cores for them",
            steps=precision.steps if precision.marked else 0,
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=precision.facts,
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            'Run forward and loss under torch.autocast("cuda", dtype=torch.bfloat16), before '
            "Ampere torch.float16 with "
            "torch.amp.GradScaler; compare the loss curves."
        )


def _or_tf32(precision: Precision) -> str:
    return " or TF32" if precision.share(TF32) > 0 else ""
