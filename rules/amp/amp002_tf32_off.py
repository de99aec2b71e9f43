"""AMP002: fp32 matrix products do not use TF32."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.source.files import Source
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.permit import Permit
from auditor.rule import Rule, knob

from .precision import FP32, TF32, Precision

AMPERE = 8
"""Compute capability from which NVIDIA's devices have TF32."""

HIGH = 'torch.set_float32_matmul_precision("high")'


@dataclass(frozen=True)
class Hints:
    """The lines that ``remedy`` may edit."""

    off_at: Site | None  # where TF32 is switched off
    trains_at: Site | None  # the only backward


@dataclass(frozen=True)
class Tf32Off(Rule):
    """fp32 matrix products run without TF32 on a device that has it."""

    code = "AMP002"
    severity = Severity.WARNING
    since = "0.1"
    edits = (
        Permit("set_constant", ("torch.backends.cuda.matmul.allow_tf32",), "allow_tf32", "True"),
        Permit("insert_after_imports", value=re.escape(HIGH)),
    )

    share: float = knob(
        0.1, "Share of kernel time in fp32 matrix products from which it is reported."
    )
    of_step: float = knob(
        0.05, "Share of the steps' time in fp32 products below which it is a note."
    )

    def detect(self, precision: Precision, source: Source) -> Iterator[Finding]:
        slow = precision.matmul_share(FP32)
        if (
            precision.amd
            or precision.capability < AMPERE
            or slow < self.share
            or precision.matmul_share(TF32) > 0
        ):
            return
        loud = precision.marked and slow * precision.busy >= self.of_step
        yield Finding(
            None,
            f"{amounts.percent(slow)} of the kernel time is matrix products in full fp32: "
            f"{precision.device or 'the device'} has TF32, "
            "and no product uses it",
            steps=precision.steps if precision.marked else 0,
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=precision.facts,
            hints=Hints(
                off_at=source.only_flag("matmul.allow_tf32", value=False),
                trains_at=source.only_call("backward"),
            ),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            'Call torch.set_float32_matmul_precision("high") once at the start, or use bf16 '
            "autocast."
        )
        hints = finding.hints_as(Hints)
        off, site = hints.off_at, hints.trains_at
        reason = "matrix products keep 10 bits of their inputs' mantissa instead of 23"
        if off is not None:
            return Remedy(
                text,
                (Edit(off, "set_constant", keyword="allow_tf32", value="True", reason=reason),),
            )
        if site is None:
            return Remedy(text)
        return Remedy(text, (Edit(site, "insert_after_imports", value=HIGH, reason=reason),))
