"""Activation checkpoints that were called without saying which variant of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import RecomputeRow


@dataclass(frozen=True)
class Unchosen:
    """Calls of ``torch.utils.checkpoint.<name>`` on one line without ``use_reentrant``.

    ``lost``: calls after which nothing had a gradient, though the module inside has parameters to
    train. ``library`` is the file and function of a library that made the call, if one did.
    """

    site: Site
    name: str
    pattern: StepPattern
    n: int
    lost: int = 0
    library: str = ""


@dataclass(frozen=True)
class ActivationCheckpointing(Table):
    """Such calls of the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("recompute", "steps")

    steps: int = 0
    unchosen: tuple[Unchosen, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> ActivationCheckpointing:
        """From the loud pass."""
        steps = len(evidence.get(Steps).loud)
        return cls(steps, tuple(_unchosen(evidence, steps)))


def _unchosen(evidence: Evidence, steps: int) -> Iterator[Unchosen]:
    rows = [row for row in rows_of(evidence, RecomputeRow) if row.step < steps]
    for at, name, library in sorted({(row.at, row.name, row.library) for row in rows}):
        here = [row for row in rows if (row.at, row.name, row.library) == (at, name, library)]
        seen = step_pattern({row.step for row in here}, steps)
        lost = sum(row.n for row in here if row.lost)
        yield Unchosen(
            evidence.recording.site(at), name, seen, sum(row.n for row in here), lost, library
        )
