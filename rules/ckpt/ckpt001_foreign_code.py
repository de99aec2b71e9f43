"""CKPT001: a checkpoint that cannot be read without importing and calling what it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule

NAMED = 5
"""Names that the message gives; the rest are counted."""

WORDS = {
    "commands": "runs commands when it is loaded: it calls",
    "module": "holds a module saved whole, and would run code when it is loaded: it needs",
    "code": "would run code when it is loaded: it needs",
    "known": "is only loaded with add_safe_globals or weights_only=False: it needs",
    "opcode": "is only loaded with weights_only=False: its pickle has",
}
REMEDIES = {
    "commands": "Do not load it. None of its code was run here; find out where it came from.",
    "module": "Load it once where its code is trusted, and save "
    "model.state_dict() instead. None of its code was run here.",
    "code": "Do not load it unless you trust that code. None of it was "
    "run here. Save plain values and state_dict() instead.",
    "known": "Save plain values: vars() of a namespace, float() and tolist() of numpy values.",
    "opcode": "Leave out pickle_protocol of torch.save: weights_only=True reads protocol 2, its "
    "default, and keeps to plain values.",
}


@dataclass(frozen=True)
class Hints:
    """What the file needs: a key of ``REMEDIES``."""

    kind: str = "code"


@dataclass(frozen=True)
class CheckpointNeedsCode(Rule):
    """A checkpoint cannot be loaded without running code."""

    code = "CKPT001"
    severity = Severity.ERROR
    since = "0.1"

    def detect(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            names = checkpoint.scan.foreign
            kind = _kind(checkpoint)
            if kind is None:
                continue
            meant = checkpoint.hostile or checkpoint.codes or names
            what = _listed(meant) if kind != "opcode" else checkpoint.scan.beyond
            yield Finding(
                None,
                f"{checkpoint.name} {WORDS[kind]} {what}",
                steps=1,
                seen_on="source",
                severity=Severity.NOTE if kind in ("known", "opcode") else None,
                facts=(
                    ("file", checkpoint.scan.path),
                    *(("needs", name) for name in (*meant, *names)[:20]),
                ),
                hints=Hints(kind),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(REMEDIES[finding.hints_as(Hints).kind])


def _kind(checkpoint: Checkpoint) -> str | None:
    if checkpoint.hostile:
        return "commands"
    if checkpoint.codes:
        return "module" if checkpoint.module else "code"
    if checkpoint.scan.foreign:
        return "known"
    return "opcode" if checkpoint.scan.beyond else None


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - NAMED
    return ", ".join(name[:80] for name in names[:NAMED]) + (
        f" and {more} more" if more > 0 else ""
    )
