"""CKPT002: an activation checkpoint that does not say which of its two variants it means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import Permit
from auditor.rule import Rule

from .activation_checkpointing import ActivationCheckpointing, Unchosen


@dataclass(frozen=True)
class Hints:
    """Last name of the call on the line; empty where the line has no such call."""

    call: str


@dataclass(frozen=True)
class CheckpointVariantNotChosen(Rule):
    """Activations are recomputed by the old variant of checkpointing, by default."""

    code = "CKPT002"
    severity = Severity.NOTE
    since = "0.1"
    edits = (
        Permit(
            "set_keyword",
            tuple(
                f"torch.utils.checkpoint.{name}" for name in ("checkpoint", "checkpoint_sequential")
            ),
            "use_reentrant",
            "False",
        ),
    )

    def detect(
        self, recompute: ActivationCheckpointing, machine: Machine, source: Source
    ) -> Iterator[Finding]:
        for call in recompute.unchosen:
            if call.library and not call.lost:
                continue  # a library's choice, that the line cannot change
            yield Finding(
                call.site,
                _said(call),
                steps=len(call.pattern.seen),
                per_step=call.n / max(1, recompute.steps),
                seen_on=machine.device,
                severity=Severity.ERROR if call.lost else None,
                facts=(("called by", call.library),) if call.library else (),
                hints=Hints(source.called(call.site, call.name)),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Pass use_reentrant=False: it gives gradients whatever went in, and takes keyword "
            "arguments."
        )
        name = finding.hints_as(Hints).call
        if finding.site is None or not name:
            return Remedy(text)
        reason = (
            "the same numbers by another implementation; parameters that got no gradient get one"
        )
        return Remedy(
            text,
            (Edit(finding.site, "set_keyword", name, "use_reentrant", "False", reason=reason),),
        )


def _said(call: Unchosen) -> str:
    if call.lost:
        return (
            f"{call.name} runs in its re-entrant variant and nothing that went in has a gradient: "
            "the parameters inside got none, "
            f"on {call.pattern}"
        )
    return (
        f"{call.name} is called without use_reentrant, on {call.pattern}: torch takes the old "
        "variant, and will refuse"
    )
