"""Updates of weights in half precision: how many of them left the weight as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import UpdateRow


@dataclass(frozen=True)
class HalfUpdates:
    """One of torch's optimizers over ``steps`` steps, a sample of its weights in ``dtype``.

    ``asked``: weights (in all steps together) whose gradient asked for a change that float32 would
    keep; ``kept``: those of them that did not change. ``rate`` is the highest of its groups.
    """

    site: Site | None
    optimizer: str
    dtype: str
    rate: float
    steps: int
    asked: int
    kept: int

    @property
    def share(self) -> float:
        """Share of the updates that were lost."""
        return self.kept / self.asked if self.asked else 0.0


@dataclass(frozen=True)
class Updates(Table):
    """All of the loud pass; empty where no optimizer stepped weights in half precision."""

    parts: ClassVar[tuple[str, ...]] = ("updates",)
    of_values: ClassVar[bool] = True

    halves: tuple[HalfUpdates, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> Updates:
        """From the loud pass."""
        facts = ("optimizer", "dtype", "rate", "steps", "asked", "kept")
        rows = [row for row in rows_of(evidence, UpdateRow) if row.pass_name == "loud"]
        sites = [None if row.at is None else evidence.recording.site(row.at) for row in rows]
        return cls(
            tuple(
                HalfUpdates(site, *(getattr(row, name) for name in facts))
                for site, row in zip(sites, rows, strict=True)
            )
        )
