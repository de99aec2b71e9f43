"""CKPT005: a training checkpoint that lacks what training goes on from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Checkpoints
from auditor.evidence.checkpoints import Checkpoint
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule

Lack = tuple[str, str, Severity]
"""What is missing, what happens without it, and how bad that is."""


@dataclass(frozen=True)
class CheckpointCannotResume(Rule):
    """
    A training checkpoint lacks what training goes on from.

    ## What it finds
    Files with weights and *some* state of the training, but not all of it: an optimizer or a
    GradScaler that is missing, a scheduler that drove the rates (its ``initial_lr`` is in the
    optimizer's groups) and is not there, nothing that says at which step it was saved, no random
    states. Weights alone, or with a counter, are an export and silent.

    ## Why it costs
    Without the optimizer the moments start from zero, and the loss jumps; without the scheduler the
    warm-up runs again; without the scaler the first steps overflow; without random states the same
    samples come again.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)

    def step():
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
        scheduler.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}, "last.pt")
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)

    def step():
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
        scheduler.step()
        parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
        torch.save({name: part.state_dict() for name, part in parts.items()} | {"rng": torch.get_rng_state()}, "last.pt")
    ```

    ## When to ignore
    You fine-tune from it, and want a fresh optimizer.

    ## Sources
    PyTorch tutorial "Saving and Loading a General Checkpoint"; PyTorch documentation of GradScaler,
    "state_dict".
    """

    code = "CKPT005"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, checkpoints: Checkpoints) -> Iterator[Finding]:
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

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Save state_dict() of model, optimizer, scheduler and scaler, the step, and "
            "torch.get_rng_state()."
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
            "the schedule that set the rates starts again from its beginning",
            Severity.WARNING,
        )
    if in_half and not scan.scaler:
        yield (
            "GradScaler state",
            "its scale starts again from 65536, and the first steps overflow",
            Severity.WARNING,
        )
    if checkpoint.steps is None and not any(each.position is not None for each in scan.schedulers):
        yield "step or epoch", "nothing says where the training was", Severity.WARNING
    if not scan.rng:
        yield "random states", "shuffling and dropout do not go on where they were", Severity.NOTE
