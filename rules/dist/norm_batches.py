"""Samples that batch norms see on a rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from .rows import NormBatchRow
from auditor.rule import NotLooked


@dataclass(frozen=True)
class Norms:
    """Batch norms of a module in ``DistributedDataParallel``: the most samples that one of them got
    at once, and the values of a channel of the one that got the fewest, in ``forwards`` forwards.
    """

    made_at: Site | None
    ran_at: Site | None
    what: str
    norm: str
    norms: int
    ranks: int
    forwards: int
    samples: int
    values: int


@dataclass(frozen=True)
class NormBatches(Table):
    """Of each such module."""

    parts: ClassVar[tuple[str, ...]] = ("norm_batches",)

    each: tuple[Norms, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> NormBatches:
        """From the instrumented pass."""
        rows = rows_of(evidence, NormBatchRow)
        if not rows:
            raise NotLooked("no batch norm ran in a DistributedDataParallel")
        site = evidence.recording.site
        return cls(
            tuple(
                Norms(
                    None if row.at is None else site(row.at),
                    None if row.norm_at is None else site(row.norm_at),
                    row.what,
                    row.norm,
                    row.norms,
                    row.ranks,
                    row.n,
                    row.samples,
                    row.values,
                )
                for row in rows
            )
        )
