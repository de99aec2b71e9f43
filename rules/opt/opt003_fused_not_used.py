"""OPT003: the optimizer has a fused implementation that is not used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.trace.optimizer import OptimizerCalls
from auditor.model import Finding, Remedy, Severity
from auditor.permit import Permit
from auditor.rule import Rule, knob

FUSED = frozenset({"Adam", "AdamW"})
"""Optimizers of torch that have had a fused CUDA implementation since 2.0. SGD's came with 2.3, and
a trace does not say which torch wrote it."""


@dataclass(frozen=True)
class Hints:
    """What the optimizer is given as ``fused``."""

    fused: CallArgument


@dataclass(frozen=True)
class FusedOptimizerNotUsed(Rule):
    """The optimizer's fused implementation is not used."""

    code = "OPT003"
    severity = Severity.NOTE
    since = "0.1"
    edits = (
        Permit(
            "set_keyword",
            tuple(f"torch.optim.{name}" for name in sorted(FUSED)),
            "fused",
            "True",
            elsewhere=True,
        ),
    )

    share: float = knob(
        0.05, "Share of the steps' time on the host inside step() from which it is reported."
    )

    def detect(
        self, optimizer: OptimizerCalls, source: Source, configs: Configs
    ) -> Iterator[Finding]:
        could = [name for name in optimizer.names if name in FUSED]
        foreach = optimizer.foreach and optimizer.launches_per_call > 0 and not optimizer.fused
        if (
            not could
            or not foreach
            or len(optimizer.names) > 1
            or optimizer.host_share < self.share
        ):
            return
        made_at = source.only_call(could[0], lacking="foreach")
        yield Finding(
            optimizer.where.site,
            f"{could[0]}{optimizer.where} steps with foreach operators, "
            f"{amounts.percent(optimizer.host_share)} of the steps' time on the host: "
            "fused=True does the same in one pass",
            steps=optimizer.steps if optimizer.marked else 0,
            per_step=optimizer.calls / optimizer.steps,
            seen_on="trace",
            facts=(("launches per step()", amounts.digits(optimizer.launches_per_call)),),
            hints=Hints(given(source, configs, made_at, could[0], "fused", ran=False)),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        text = "Pass fused=True to the optimizer; measure it, and keep what is faster."
        fused = finding.hints_as(Hints).fused
        if fused.site is None:
            return Remedy(text)
        reason = "the fused kernel rounds in another order: the last bits of the parameters differ"
        return Remedy(
            text + fused.advice, fused.edits("True", reason=reason), refused=fused.refused
        )
