"""CFG002: a convolution has a bias that the batch norm behind it takes away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.source.files import Source
from auditor.evidence.trace.patterns import Structure
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import Permit
from auditor.rule import NotLooked, Rule, knob

from .conv_bias import CONVOLUTIONS, Made, biased_before_norm


@dataclass(frozen=True)
class Hints:
    """The convolutions whose bias can go."""

    made_at: tuple[Made, ...]


@dataclass(frozen=True)
class BiasBeforeBatchNorm(Rule):
    """A convolution adds a bias that the batch norm behind it takes away again."""

    code = "CFG002"
    severity = Severity.WARNING
    since = "0.1"
    edits = tuple(
        Permit("set_keyword", (f"torch.nn.{name}",), "bias", "False") for name in CONVOLUTIONS
    )

    share: float = knob(
        0.01, "Share of kernel time for adding such biases from which it is a warning."
    )

    def detect(self, structure: Structure, source: Source) -> Iterator[Finding]:
        if not structure.convolutions:
            return
        if not structure.shapes:
            raise NotLooked(
                "the trace holds no shapes of convolutions: record it with record_shapes=True"
            )
        if not structure.biased:
            return
        loud = structure.marked and structure.bias_share >= self.share
        each = structure.biased / structure.steps
        yield Finding(
            structure.biased_at.site,
            f"{amounts.digits(each)} convolution{'s' * (each > 1)} "
            f"{'per step' if structure.marked else 'in the trace'}{structure.biased_at} add a bias "
            "that a batch "
            f"norm takes away: {amounts.percent(structure.bias_share)} of the kernel time",
            steps=structure.steps if structure.marked else 0,
            per_step=each if structure.marked else 0.0,
            lost_us_per_step=structure.bias_us / structure.steps if loud else None,
            basis="estimated" if loud else "none",
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=(("convolutions in the trace", f"{structure.convolutions}"),),
            hints=Hints(biased_before_norm(source)),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Make these convolutions with bias=False (a checkpoint then lacks their biases: load "
            "it with strict=False)."
        )
        reason = "a parameter less: other random numbers at the start, and checkpoints without it"
        made = finding.hints_as(Hints).made_at
        return Remedy(
            text,
            tuple(
                Edit(site, "set_keyword", call, "bias", "False", reason=reason, span=span)
                for site, call, span in made
            ),
        )
