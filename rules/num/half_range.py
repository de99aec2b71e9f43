"""NUM004, 5, 16 and 17: what half precision does not hold, and losses that torch warns of."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.amp import LARGEST, Amp, OpRanges, facts_of
from auditor.evidence.table import Rows, by_line
from auditor.model import Finding, Remedy, Severity
from auditor.recordings.schema.numerics import NumericRow
from auditor.rule import Rule, knob

from ..torch_says import TorchSays
from .rows import UpdateRow


class StdOfTooFew(TorchSays):
    """A standard deviation of one number is taken."""

    code = "NUM016"
    severity = Severity.NOTE
    warning = "too few for std"
    defect = "std() or var() of a single number is NaN: it divides by the count minus one"
    advice = "Pass correction=0, or drop batches of one sample (drop_last=True)."


class ImaginaryPartDropped(TorchSays):
    """A complex tensor becomes a real one."""

    code = "NUM017"
    severity = Severity.NOTE
    warning = "imaginary part"
    defect = "a complex tensor becomes real: its imaginary part is dropped"
    advice = "Say which part is meant: .real, .abs(), or torch.view_as_real()."


@dataclass(frozen=True)
class HalfNearOverflow(Rule):
    """Activations in float16 come near its largest number."""

    code = "NUM004"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    advice = (
        "Use bfloat16, which has the range of float32; else scale the values down (normalize "
        "before the product), or run this part in float32 with autocast off around it."
    )

    bits: float = knob(2.0, "Report a largest value within this many powers of two of 65504.")

    def detect(self, numerics: OpRanges, amp: Amp) -> Iterator[Finding]:
        yield from self._near(numerics)
        if amp.skipped:
            seen = f"GradScaler skipped {len(amp.skipped)} of {len(amp.updates)} steps"
            yield from self._over(numerics, seen)
        elif numerics.loss_lost:
            seen = f"the loss was not finite in any of {numerics.loss_lost} backward passes"
            yield from self._over(numerics, seen, Severity.ERROR)

    def _over(
        self, numerics: OpRanges, seen: str, severity: Severity | None = None
    ) -> Iterator[Finding]:
        for here in by_line(call for call in numerics.of("output") if call.overflowed):
            worst = max(here, key=lambda call: call.overflowed)
            yield Finding(
                worst.site,
                f"{worst.op} overflowed in float16, which ends at 65504, in {worst.overflowed} of "
                f"{worst.n} calls; {seen}",
                steps=worst.steps,
                per_step=sum(call.overflowed for call in here) / max(1, numerics.steps),
                severity=severity,
                facts=facts_of(worst),
            )

    def _near(self, numerics: OpRanges) -> Iterator[Finding]:
        calls = (call for call in numerics.of("output") if 0.0 <= _headroom(call) < self.bits)
        for near in by_line(calls):
            worst = min(near, key=_headroom)
            yield Finding(
                worst.site,
                f"{worst.op} gave values up to {_peak(worst):.4g} in float16, which ends at 65504: "
                f"{_headroom(worst):.2g} powers of two are left",
                steps=worst.steps,
                per_step=sum(numerics.per_step(call) for call in near),
                facts=(*facts_of(worst), ("headroom", f"{_headroom(worst):.2g} powers of two")),
            )


def _peak(call: NumericRow) -> float:
    return max(abs(call.low or 0.0), abs(call.high or 0.0))


def _headroom(call: NumericRow) -> float:
    """Powers of two up to the largest float16; negative if not finite, infinite for zeros."""
    peak = _peak(call)
    if not math.isfinite(peak):
        return -1.0
    return math.log2(LARGEST["float16"] / peak) if peak > 0 else math.inf


BITS = {"float16": 11, "bfloat16": 8}
"""Bits of significand: an update below 2 ** -(bits + 1) of the weight is rounded away."""


LEAST = 100
"""Updates that must have been looked at."""


@dataclass(frozen=True)
class UpdatesRoundedAway(Rule):
    """Updates are too small for the dtype of the weights, and are rounded away."""

    code = "NUM005"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    advice = (
        "Keep the weights in float32 and compute under torch.autocast; or take an optimizer that "
        "uses stochastic rounding or keeps a copy in float32."
    )

    share: float = knob(0.5, "Report if at least this share of the updates is lost.")
    fewest: int = knob(3, "Report only after at least this many optimizer steps.")

    def detect(self, updates: Rows[UpdateRow]) -> Iterator[Finding]:
        for each in updates:
            few = bool(each.optimizer) and each.steps < self.fewest
            if few or each.asked < LEAST or each.share < self.share:
                continue
            least = 2.0 ** -(BITS.get(each.dtype, 8) + 1)
            share, rate = amounts.percent(each.share), f"a rate of {each.rate:g}"
            who = (
                f"{each.optimizer} leaves {share} of the {each.dtype} weights that have a gradient"
                if each.optimizer
                else f"this line leaves {share} of the averages in {each.dtype} that it updates"
            )
            steps_at = () if each.cast is None else (("steps at", str(each.site)),)
            yield Finding(
                each.cast or each.site,
                f"{who} unchanged: an update at {rate} is below {least:.1g} of the weight and "
                "is rounded away",
                steps=each.steps,
                per_step=1.0,
                facts=steps_at,
                remedy=None if each.optimizer else Remedy("Keep averages of weights in float32."),
            )
