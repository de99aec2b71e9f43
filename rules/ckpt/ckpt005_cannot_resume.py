"""CKPT005: a training checkpoint that lacks what training goes on from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule

from ..lines import places_of
from .resumes import Resumes

Lack = tuple[str, str, Severity]
"""What is missing, what happens without it, and how bad that is."""


MOMENTS = "after a resume its moments start from zero, and the loss jumps"
SCHEDULE = "after a resume the schedule starts over"


@dataclass(frozen=True)
class CheckpointCannotResume(Rule):
    """A training checkpoint lacks state that a resume needs."""

    code = "CKPT005"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Save state_dict() of model, optimizer, scheduler and scaler, the step, and "
        "torch.get_rng_state()."
    )

    def detect(self, resumes: Resumes) -> Iterator[Finding]:
        if not resumes.looked:
            raise NotLooked("the recorded source has no checkpoint from which training resumes")
        for lack in resumes.unsaved:
            then = MOMENTS if lack.what == "optimizer" else SCHEDULE
            yield Finding(
                lack.site,
                f"this checkpoint holds weights and `{lack.counter}`, and training resumes from it "
                f"at {lack.resumed}, but the state of the {lack.kind} created at {lack.made} is never "
                f"saved: {then}",
                steps=1,
                seen_on="source",
                severity=Severity.NOTE if lack.kind == "SGD" else None,
                places=places_of(lack.site, lack.saved, lack.resumed),
                remedy=Remedy(
                    f"Add the {lack.what}'s state_dict() to the checkpoint, and pass it to its "
                    "load_state_dict() where the weights are loaded."
                ),
            )

    def in_checkpoint(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            lacks = (
                list(_lacks(checkpoint, in_half=checkpoints.in_half))
                if not checkpoint.scan.damage
                else []
            )
            if not lacks:
                continue
            yield Finding(
                None,
                f"{checkpoint.name} holds no {' and no '.join(what for what, _, _ in lacks)}: "
                f"{lacks[0][1]}",
                steps=1,
                seen_on="source",
                severity=min((severity for _, _, severity in lacks), key=lambda each: each.rank),
                facts=(
                    ("file", checkpoint.scan.path),
                    *((f"without {what}", then) for what, then, _ in lacks),
                ),
            )


def _lacks(checkpoint: Checkpoint, *, in_half: bool) -> Iterator[Lack]:
    scan = checkpoint.scan
    if not checkpoint.weights or not (scan.optimizers or scan.schedulers or scan.scaler):
        return
    if not scan.optimizers:
        yield "optimizer state", "its moments start from zero, and the loss jumps", Severity.WARNING
        return
    driven = any(
        "initial_lr" in group for optimizer in scan.optimizers for group in optimizer.groups
    )
    if driven and not scan.schedulers:
        yield (
            "scheduler",
            "the schedule that set the rates starts over",
            Severity.WARNING,
        )
    if in_half and not scan.scaler:
        yield (
            "GradScaler state",
            "its scale starts over at 65536, and the first steps overflow",
            Severity.WARNING,
        )
    if checkpoint.steps is None and not any(each.position is not None for each in scan.schedulers):
        yield "step or epoch", "nothing says where the training was", Severity.WARNING
    if not scan.rng:
        yield (
            "random states",
            "shuffling and dropout do not continue where they stopped",
            Severity.NOTE,
        )
