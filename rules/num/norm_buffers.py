"""Running statistics of a batch norm that are not finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema import NormBufferRow


@dataclass(frozen=True)
class NormBuffer:
    """``buffer`` of an ``owner`` that ran at ``site`` held ``value`` (``nan`` or ``inf``) after
    ``step`` of the loud pass.
    """

    site: Site
    step: int
    owner: str
    buffer: str
    value: str


@dataclass(frozen=True)
class NormBuffers(Table):
    """The first one that was seen; None where all were finite, or an older recording does not
    say.
    """

    parts: ClassVar[tuple[str, ...]] = ("buffers",)

    first: NormBuffer | None = None

    @classmethod
    def without_parts(cls, evidence: Evidence) -> NormBuffers:
        """Nothing is known of them, and what else a rule asks for still is."""
        return cls()

    @classmethod
    def build(cls, evidence: Evidence) -> NormBuffers:
        """From the loud pass."""
        site = evidence.recording.site
        rows = rows_of(evidence, NormBufferRow)
        found = (NormBuffer(site(r.at), r.step, r.owner, r.buffer, r.value) for r in rows)
        return cls(next(found, None))
