"""Activation checkpoints that were called without saying which variant of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.rhythm import Rhythm, rhythm
from auditor.evidence.steps import Steps
from auditor.evidence.table import Table, rows_of
from auditor.model import Site
from auditor.recording import Recording


@dataclass(frozen=True)
class Unchosen:
    """Calls of ``torch.utils.checkpoint.<name>`` on one line without ``use_reentrant``.

    ``lost``: calls after which nothing had a gradient, though the module inside has parameters to train. ``library`` is the
    file and function of a library that made the call, if one did.
    """

    site: Site
    name: str
    rhythm: Rhythm
    n: int
    lost: int = 0
    library: str = ""


@dataclass(frozen=True)
class Recompute(Table):
    """Such calls of the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("recompute", "steps")

    steps: int = 0
    unchosen: tuple[Unchosen, ...] = ()

    @classmethod
    def build(cls, recording: Recording) -> Recompute:
        """From the loud pass."""
        steps = len(Steps.build(recording).loud)
        return cls(steps, tuple(_unchosen(recording, steps)))


def _unchosen(recording: Recording, steps: int) -> Iterator[Unchosen]:
    rows = [row for row in rows_of(recording, "recompute") if row["step"] < steps]
    for at, name, library in sorted({(row["at"], row["name"], row["library"]) for row in rows}):
        here = [row for row in rows if (row["at"], row["name"], row["library"]) == (at, name, library)]
        seen = rhythm({row["step"] for row in here}, steps)
        lost = sum(row["n"] for row in here if row["lost"])
        yield Unchosen(recording.site(at), name, seen, sum(row["n"] for row in here), lost, library)
