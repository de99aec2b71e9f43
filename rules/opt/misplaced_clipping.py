"""Lines that clip gradients when there is nothing to clip."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import ClippingRow


@dataclass(frozen=True)
class InVain:
    """One line and one optimizer of the loud pass: before ``n`` of its ``steps`` this line clipped,
    and a backward ran behind it, behind which nothing did.

    ``absent``: there were no gradients yet; else they were those of the step before.
    """

    site: Site
    optimizer: str
    steps: int
    n: int
    absent: bool


@dataclass(frozen=True)
class MisplacedClipping(Table):
    """All such lines."""

    parts: ClassVar[tuple[str, ...]] = ("clippings",)

    lines: tuple[InVain, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> MisplacedClipping:
        """From the loud pass."""
        site = evidence.recording.site
        rows = rows_of(evidence, ClippingRow)
        return cls(tuple(InVain(site(r.at), r.optimizer, r.steps, r.n, r.absent) for r in rows))

    def usual(self, share: float, fewest: int) -> Iterator[InVain]:
        """Those of at least this share of an optimizer's steps, and so many of them; of a line with
        several optimizers the first.
        """
        told: set[Site] = set()
        for each in self.lines:
            if each.n >= max(fewest, share * each.steps) and each.site not in told:
                told.add(each.site)
                yield each
