"""CKPT003: a checkpoint that is not what was saved, or will not be if the job dies in a bad
moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Checkpoints, Machine, Saves
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule


@dataclass(frozen=True)
class Hints:
    """A sentence that names the latest good checkpoint; empty without one."""

    instead: str = ""


@dataclass(frozen=True)
class CheckpointDamaged(Rule):
    """
    A checkpoint is cut off or damaged.

    ## What it finds
    Files that end early, records whose CRC-32 is not the one that was saved, tensors that reach
    beyond their data, headers that contradict the data, shards that are missing. ``torch.load``
    reads a record with a wrong checksum without a word. An archive that was written without
    checksums (``torch.serialization.set_crc32_options(False)``) is silent. In a run, as a note:
    ``torch.save`` writes again and again over the one file that the run saves to.

    ## Why it costs
    A job that dies while it overwrites its only checkpoint has none. A flipped bit in the weights
    is trained on.

    ## Example
    ```python
    import os
    import torch

    model = torch.nn.Linear(64, 64)

    def step():
        torch.save(model.state_dict(), "last.pt")
        os.truncate("last.pt", os.path.getsize("last.pt") // 2)  # the job was killed here
    ```

    ## Use instead
    ```python
    import os
    import torch

    model = torch.nn.Linear(64, 64)

    def step():
        torch.save(model.state_dict(), "last.pt.new")
        os.replace("last.pt.new", "last.pt")  # whole, or the one before
    ```

    ## When to ignore
    A damaged one never: use the checkpoint before it. The note, if the file is copied elsewhere
    between two saves.

    ## Sources
    pytorch/pytorch#126952: torch.load does not check CRC-32. Lightning-AI/pytorch-lightning#19970:
    saves that are not atomic.
    """

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
