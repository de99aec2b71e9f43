"""NUM004: values in float16 that come near its end, before they overflow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from auditor.evidence.recorded.amp import Amp
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.op_ranges import LARGEST, Delicate, OpRanges
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class HalfNearOverflow(Rule):
    """Activations in float16 come near its largest number."""

    code = "NUM004"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    bits: float = knob(
        2.0, "Powers of two between the largest value and 65504 below which it is reported."
    )

    def detect(self, numerics: OpRanges, amp: Amp, machine: Machine) -> Iterator[Finding]:
        yield from self._near(numerics, machine)
        if amp.skipped:
            seen = f"GradScaler skipped {len(amp.skipped)} of {len(amp.updates)} steps"
            yield from self._over(numerics, seen, machine)
        elif numerics.loss_lost:
            seen = f"the loss was not finite in any of {numerics.loss_lost} backwards"
            yield from self._over(numerics, seen, machine, Severity.ERROR)

    def _over(
        self, numerics: OpRanges, seen: str, machine: Machine, severity: Severity | None = None
    ) -> Iterator[Finding]:
        calls = (call for call in numerics.of("output") if call.overflowed)
        for site, group in groupby(sorted(calls, key=_place), key=lambda call: call.site):
            here = list(group)
            worst = max(here, key=lambda call: call.overflowed)
            yield Finding(
                site,
                f"{worst.op} overflowed in float16, which ends at 65504, in {worst.overflowed} of "
                f"{worst.n} calls; {seen}",
                steps=worst.steps,
                per_step=sum(call.overflowed for call in here) / max(1, numerics.steps),
                seen_on=machine.device,
                severity=severity,
                facts=worst.facts,
            )

    def _near(self, numerics: OpRanges, machine: Machine) -> Iterator[Finding]:
        calls = sorted(numerics.of("output"), key=_place)
        for site, group in groupby(calls, key=lambda call: call.site):
            near = [call for call in group if 0.0 <= _headroom(call) < self.bits]
            if not near:
                continue
            worst = min(near, key=_headroom)
            yield Finding(
                site,
                f"{worst.op} gave values up to {_peak(worst):.4g} in float16, which ends at 65504: "
                f"{_headroom(worst):.2g} powers of two are left",
                steps=worst.steps,
                per_step=sum(numerics.per_step(call) for call in near),
                seen_on=machine.device,
                facts=(*worst.facts, ("headroom", f"{_headroom(worst):.2g} powers of two")),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Use bfloat16, which has the range of float32; else scale the values down (normalise "
            "before the product), or run "
            "this part in float32 with autocast off around it."
        )


def _place(call: Delicate) -> tuple[str, int]:
    return call.site.file, call.site.line


def _peak(call: Delicate) -> float:
    return max(abs(call.low or 0.0), abs(call.high or 0.0))


def _headroom(call: Delicate) -> float:
    """Powers of two up to the largest float16; negative for what is not finite, infinite for
    zeros.
    """
    peak = _peak(call)
    if not math.isfinite(peak):
        return -1.0
    return math.log2(LARGEST["float16"] / peak) if peak > 0 else math.inf
