"""Steps of optimizers whose gradients still held those of the step before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import UnclearedRow


@dataclass(frozen=True)
class AccumulatedOver:
    """One optimizer of the loud pass: on ``piled`` of its ``steps`` a backward had added to
    gradients that nothing had cleared.

    ``site`` is where it steps, ``backward`` the line of the last such backward.
    """

    optimizer: str
    site: Site | None
    backward: Site | None
    steps: int
    piled: int


@dataclass(frozen=True)
class StaleGrads(Table):
    """All optimizers that stepped in the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("uncleared",)

    optimizers: tuple[AccumulatedOver, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> StaleGrads:
        """From the loud pass."""
        return cls(
            tuple(
                AccumulatedOver(
                    row.optimizer,
                    _site(evidence, row.at),
                    _site(evidence, row.backward_at),
                    row.steps,
                    row.piled,
                )
                for row in rows_of(evidence, UnclearedRow)
            )
        )

    def always(self, fewest: int) -> Iterator[AccumulatedOver]:
        """Those that stepped so often and cleared never: before the first step that is watched
        nothing can be said.
        """
        return (
            each for each in self.optimizers if each.steps > fewest and each.piled == each.steps - 1
        )


def _site(evidence: Evidence, at: int | None) -> Site | None:
    return None if at is None else evidence.recording.site(at)
