"""What the optimizers had to step with: parameters that never got a gradient, groups whose rate is
zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema import FedRow


@dataclass(frozen=True)
class WithoutGrad:
    """A parameter that got no gradient in any step."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Stepped:
    """One optimizer in the loud pass: ``steps`` it took, its trainable ``parameters``, what it
    never had anything for.

    ``unfed`` are the first of ``n``; ``still`` are (group, trainable parameters) whose rate was
    zero on every step. ``called`` is the module that owns most of ``unfed`` and was called at
    ``called_at``; None where no such module ran.
    """

    optimizer: str
    site: Site | None
    steps: int
    parameters: int
    unfed: tuple[WithoutGrad, ...] = ()
    n: int = 0
    still: tuple[tuple[int, int], ...] = ()
    called_at: Site | None = None
    called: str = ""


@dataclass(frozen=True)
class ParamsWithoutGrad(Table):
    """All optimizers that stepped in the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("fed",)
    absent: ClassVar[Mapping[str, str]] = {"fed": "no optimizer stepped while the auditor looked"}

    optimizers: tuple[Stepped, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> ParamsWithoutGrad:
        """From the loud pass."""
        return cls(
            tuple(
                _stepped(evidence, row)
                for row in rows_of(evidence, FedRow)
                if row.pass_name == "loud"
            )
        )

    def long_enough(self, steps: int) -> Iterator[Stepped]:
        """Those that took at least this many steps."""
        return (each for each in self.optimizers if each.steps >= steps)


def _stepped(evidence: Evidence, row: FedRow) -> Stepped:
    at = row.at
    return Stepped(
        row.optimizer,
        None if at is None else evidence.recording.site(at),
        row.steps,
        row.parameters,
        tuple(WithoutGrad(each.name, tuple(each.shape)) for each in row.unfed),
        row.n,
        tuple((each.group, each.parameters) for each in row.still),
        None if row.called_at is None else evidence.recording.site(row.called_at),
        row.called,
    )
