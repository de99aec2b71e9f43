"""Lines whose blocks stay: allocated all through a history, and never freed again."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.snapshot.file import snapshot_of
from auditor.evidence.snapshot.history import Allocations
from auditor.evidence.snapshot.segments import origins_of
from auditor.evidence.snapshot.state_at import state_after
from auditor.evidence.table import MALFORMED, Evidence, Table
from auditor.model import Site
from auditor.rule import NotLooked


@dataclass(frozen=True)
class NeverFreedLine:
    """Blocks of one line that are live at the end and were born in the first, second and last third
    of the history, in bytes.
    """

    site: Site
    thirds: tuple[int, int, int]
    blocks: int

    @property
    def size(self) -> int:
        """All of them."""
        return sum(self.thirds)


@dataclass(frozen=True)
class NeverFreed(Table):
    """Lines with such blocks in every third, the largest first; empty where there is no history.

    Gradients and the like are live at the end too, but were all born in the last step; weights and
    states in the first.
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    lines: tuple[NeverFreedLine, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> NeverFreed:
        """From the history of the device with most memory."""
        try:
            course = evidence.get(Allocations).devices[0]
            return cls(_kept(evidence, course.device, len(course.reserved)))
        except (NotLooked, *MALFORMED):
            return cls()


def _kept(evidence: Evidence, device: int, events: int) -> tuple[NeverFreedLine, ...]:
    origins = origins_of(evidence)
    thirds: dict[Site, list[int]] = defaultdict(lambda: [0, 0, 0])
    blocks: dict[Site, int] = defaultdict(int)
    for block in state_after(snapshot_of(evidence), device, events).blocks:
        site = origins.site(block.frames) if block.born >= 0 else None
        if site is not None:
            thirds[site][min(2, 3 * block.born // events)] += block.size
            blocks[site] += 1
    found = (
        NeverFreedLine(site, (each[0], each[1], each[2]), blocks[site])
        for site, each in thirds.items()
        if all(each)
    )
    return tuple(sorted(found, key=lambda line: -line.size))
