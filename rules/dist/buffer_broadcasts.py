"""Buffers that rank 0 sends to the others before each forward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from .rows import BufferBroadcastRow
from auditor.rule import NotLooked


@dataclass(frozen=True)
class SentBuffers:
    """The buffers of a module in ``DistributedDataParallel``: how many and how large they are, how
    many changed in the pass, how often they were sent and in how many steps that was.
    """

    made_at: Site | None
    what: str
    ranks: int
    buffers: int
    changed: int
    nbytes: int
    sent: int
    steps: int
    keyword: str = "broadcast_buffers"
    """What turns it off."""

    @property
    def per_step(self) -> float:
        """Broadcasts of a step."""
        return self.sent / max(1, self.steps)


@dataclass(frozen=True)
class BufferBroadcasts(Table):
    """Of each module, in the order in which they were made."""

    parts: ClassVar[tuple[str, ...]] = ("buffer_broadcasts", "steps")

    each: tuple[SentBuffers, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> BufferBroadcasts:
        """From the instrumented pass."""
        rows = rows_of(evidence, BufferBroadcastRow)
        if not rows:
            raise NotLooked("no DistributedDataParallel sent buffers that could be compared")
        steps, site = len(evidence.get(Steps).loud), evidence.recording.site
        return cls(
            tuple(
                SentBuffers(
                    None if row.at is None else site(row.at),
                    row.what,
                    row.ranks,
                    row.buffers,
                    row.changed,
                    row.bytes,
                    row.n,
                    steps,
                    row.keyword,
                )
                for row in sorted(rows, key=lambda row: row.number)
            )
        )
