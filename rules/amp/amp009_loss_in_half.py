"""AMP009: a logarithm, an exponential or a loss function that runs in half precision on its way to
the loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.op_ranges import Delicate, OpRanges
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule

CALLED = {
    "nll_loss_forward": "nll_loss",
    "nll_loss2d_forward": "nll_loss",
}
"""Names of operators as users write them."""

STABLE = frozenset({"log_softmax", "log_sigmoid_forward", "softplus", "logsumexp"})
"""Their kernels work in float32 and never overflow: only the result is rounded."""

DIGITS = {"float16": 3, "bfloat16": 2}
"""Decimal digits that are kept: 11 and 8 bits of significand."""


@dataclass(frozen=True)
class LossInHalf(Rule):
    """The loss is computed in half precision by an operation that needs float32."""

    code = "AMP009"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    def detect(self, numerics: OpRanges, machine: Machine) -> Iterator[Finding]:
        calls = [
            call
            for call in numerics.of("function")
            if call.half and call.loss and call.op not in STABLE
        ]
        calls.sort(key=lambda call: (call.site.file, call.site.line))
        for site, group in groupby(calls, key=lambda call: call.site):
            here = list(group)
            worst = min(here, key=lambda call: call.dtype != "float16")
            names = " and ".join(
                dict.fromkeys(_called(call) for call in here if call.dtype == worst.dtype)
            )
            yield Finding(
                site,
                f"{names} ran in {worst.dtype} on the way to the loss, which keeps "
                f"{DIGITS[worst.dtype]} decimal digits{_range(worst)}",
                steps=max(call.steps for call in here),
                per_step=sum(numerics.per_step(call) for call in here),
                seen_on=machine.device,
                severity=None if worst.dtype == "float16" else Severity.NOTE,
                facts=worst.facts,
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Cast to float32 before it (score.float()), outside autocast or with autocast off "
            "around the loss."
        )


def _called(call: Delicate) -> str:
    return CALLED.get(call.op, call.op)


def _range(call: Delicate) -> str:
    known = call.low is not None and call.high is not None
    return f" (its input went from {call.low:.3g} to {call.high:.3g})" if known else ""
