"""CKPT003: a checkpoint that is not what was saved, or will not be if the job dies in a bad
moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.checkpoints import Checkpoints
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.torch_save import Saves
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule


@dataclass(frozen=True)
class Hints:
    """A sentence that names the latest good checkpoint; empty without one."""

    instead: str = ""


@dataclass(frozen=True)
class CheckpointDamaged(Rule):
    """A checkpoint is cut off or damaged."""

    code = "CKPT003"
    severity = Severity.ERROR
    since = "0.1"

    def detect(self, saves: Saves, machine: Machine) -> Iterator[Finding]:
        saves.need_saves()
        lines = [line for line in saves.lines() if sum(save.replaced for save in line.calls) > 1]
        if (
            not lines or len({save.path for save in saves.each if save.path is not None}) != 1
        ):  # else there is another one
            raise NotLooked(
                "a run looks at how checkpoints are written, not at what is in them: audit "
                "checkpoint FILE does"
            )
        for line in lines:
            over = [save for save in line.calls if save.replaced]
            yield Finding(
                line.site,
                f"torch.save writes over the run's only checkpoint in place, on {line.pattern}: a "
                "job that dies in one of these "
                f"{amounts.duration(max(save.us for save in over))} has none",
                steps=len(line.pattern.seen),
                per_step=line.per_step,
                seen_on=machine.device,
                severity=Severity.NOTE,
                facts=(("file", str(over[0].path)), ("written over", f"{len(over)} times")),
            )

    def in_checkpoint(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            damage = checkpoint.scan.damage
            if not damage:
                continue
            more = f"; and {len(damage) - 1} more" if len(damage) > 1 else ""
            yield Finding(
                None,
                f"{checkpoint.name} is damaged: {damage[0]}{more}",
                steps=1,
                seen_on="source",
                facts=(
                    ("file", checkpoint.scan.path),
                    *(("damage", sentence) for sentence in damage[:20]),
                ),
                hints=Hints(checkpoints.instead),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        write = (
            "Save to a temporary name and os.replace it, so that a job that dies leaves the "
            "checkpoint before."
        )
        return Remedy(f"{finding.hints_as(Hints).instead}{write}")
