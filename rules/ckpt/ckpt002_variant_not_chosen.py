"""CKPT002: an activation checkpoint that does not say which of its two variants it means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.grouping import together
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import Permit
from auditor.rule import Rule

from .rows import RecomputeRow


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
        self, recompute: Rows[RecomputeRow], steps: Steps, machine: Machine, source: Source
    ) -> Iterator[Finding]:
        done = (row for row in recompute if row.step < len(steps.loud))
        for calls in together(done, lambda row: (row.at, row.name, row.library)):
            name, library = calls[0].name, calls[0].library
            lost = any(row.lost for row in calls)
            if library and not lost:
                continue  # a library's choice, that the line cannot change
            pattern = step_pattern({row.step for row in calls}, len(steps.loud))
            yield Finding(
                calls[0].site,
                _said(name, pattern, lost=lost),
                steps=len(pattern.seen),
                per_step=sum(row.n for row in calls) / pattern.of,
                seen_on=machine.device,
                severity=Severity.ERROR if lost else None,
                facts=(("called by", library),) if library else (),
                hints=Hints(source.called(calls[0].site, name)),
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


def _said(name: str, pattern: StepPattern, *, lost: bool) -> str:
    if lost:
        return (
            f"{name} runs in its re-entrant variant and nothing that went in has a gradient: "
            f"the parameters inside got none, on {pattern}"
        )
    return (
        f"{name} is called without use_reentrant, on {pattern}: torch takes the old variant, and "
        "will refuse"
    )
